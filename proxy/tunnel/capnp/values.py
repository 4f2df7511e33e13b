"""Cap'n Proto values as trees, with the same shape for reading and writing.

A `Struct` has a data section, with fields at fixed byte offsets, and pointers to other values. Fields beyond the end of
what was sent read as zero or empty, so that a newer reader understands an older writer. Fields that nobody reads may
have been added by a newer writer.

Text and Data are both byte lists; a Text ends with a NUL, which `Struct.text` removes and `text` adds.
"""

from typing import TypeAlias, TypeVar

import msgspec

from proxy.tunnel.capnp.errors import MalformedMessage

T = TypeVar("T")

WORD_BYTES = 8


class Capability(msgspec.Struct, frozen=True):
    """A pointer into the capability table of the message's payload."""

    index: int


class Scalars(msgspec.Struct, frozen=True):
    """A list of numbers or bits. Nothing in this protocol uses them, so they are kept as received."""

    element_code: int
    count: int
    data: bytes


class PointerList(msgspec.Struct, frozen=True):
    items: tuple["Value | None", ...]


class StructList(msgspec.Struct, frozen=True):
    """All items have sections of the same sizes, which are given even if there are no items."""

    data_words: int
    pointer_count: int
    items: tuple["Struct", ...]


class Struct(msgspec.Struct, frozen=True):
    data: bytes
    """Whole words."""
    pointers: tuple["Value | None", ...]

    def unsigned(self, offset: int, size_bytes: int) -> int:
        return int.from_bytes(self.data[offset : offset + size_bytes], "little")

    def signed(self, offset: int, size_bytes: int) -> int:
        return int.from_bytes(self.data[offset : offset + size_bytes], "little", signed=True)

    def bit(self, number: int) -> bool:
        return bool(self.unsigned(number // 8, 1) >> number % 8 & 1)

    def pointer(self, index: int) -> "Value | None":
        return self.pointers[index] if index < len(self.pointers) else None

    def struct(self, index: int) -> "Struct":
        """The struct, or if there is none the empty one, whose fields all have their defaults."""
        return self._of_type(index, Struct) or EMPTY

    def octets(self, index: int) -> bytes:
        return self._of_type(index, bytes) or b""

    def text(self, index: int) -> str:
        return _text_of(self.octets(index))

    def texts(self, index: int) -> tuple[str, ...]:
        found = self._of_type(index, PointerList)
        if found is None:
            return ()
        if not all(isinstance(item, bytes | None) for item in found.items):
            raise MalformedMessage(f"pointer {index} leads to another kind of list, want a list of texts")
        return tuple(_text_of(item or b"") for item in found.items if isinstance(item, bytes | None))

    def structs(self, index: int) -> tuple["Struct", ...]:
        found = self._of_type(index, StructList)
        return () if found is None else found.items

    def _of_type(self, index: int, wanted: type[T]) -> T | None:
        value = self.pointer(index)
        if value is None or isinstance(value, wanted):
            return value
        raise MalformedMessage(f"pointer {index} leads to a {type(value).__name__}, want a {wanted.__name__}")


Value: TypeAlias = Struct | bytes | PointerList | StructList | Scalars | Capability

EMPTY = Struct(b"", ())


def text(value: str) -> bytes | None:
    """Encode a Text; the empty one is the default, so it is left out."""
    return value.encode("utf-8", "replace") + b"\0" if value else None


def octets(value: bytes) -> bytes | None:
    """Encode a Data; the empty one is left out."""
    return value or None


def _text_of(raw: bytes) -> str:
    if raw and raw[-1]:
        raise MalformedMessage("text without a NUL at its end")
    return raw[:-1].decode("utf-8", "replace")
