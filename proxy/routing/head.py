"""The request head as routing reads it: a protocol that `heads.RequestHead` satisfies, so nothing is converted."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from proxy.heads import Field


class Head(Protocol):
    """What `decide` reads of a request."""

    @property
    def method(self) -> bytes:
        """As sent, such as b"GET"."""

    @property
    def authority(self) -> bytes:
        """Host with optional port, from `:authority`, else from the Host field, else empty."""

    @property
    def path(self) -> bytes:
        """Path with query (origin-form), as sent."""

    @property
    def fields(self) -> Sequence[Field]:
        """The header fields in the order received."""


class PlainHead(msgspec.Struct, frozen=True):
    """A head built from given values, for `explain`."""

    method: bytes
    authority: bytes
    path: bytes
    fields: tuple[Field, ...] = ()


_SCHEMES = {b"http": b"http", b"https": b"https"}


def header(head: Head, name: bytes) -> bytes | None:
    """The value of a header field; None if it was not sent. `name` must be in lower case.

    Several fields of one name are joined by b", ", those of Cookie by b"; " (RFC 9110, 5.3; RFC 9113, 8.2.3).
    For b"host" this is the authority, since codecs do not keep Host among the fields.
    """
    return joined_values(head, name, [value for key, value in head.fields if key == name])


def client_scheme(head: Head, own: bytes, *, is_trusted: bool) -> bytes:
    """The scheme that the client uses, b"http" or b"https": X-Forwarded-Proto from a trusted proxy, which may have
    terminated TLS, else `own`, the scheme of the listener."""
    given = header(head, b"x-forwarded-proto") if is_trusted else None
    return _SCHEMES.get(given.lower(), own) if given else own


def joined_values(head: Head, name: bytes, values: Sequence[bytes]) -> bytes | None:
    """Like `header`, given the values of all fields with that name."""
    if not values:
        return head.authority if name == b"host" else None
    if len(values) == 1:
        return values[0]
    # Empty elements mean nothing (RFC 9110, 5.6.1.2), and at the end would leave a trailing space.
    return (b"; " if name == b"cookie" else b", ").join(filter(None, values))
