"""The request head as routing reads it: what the heads of both codecs have, so that nothing is copied or wrapped."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

Field: TypeAlias = tuple[bytes, bytes]
"""Name in lower case, value."""


class Head(Protocol):
    """What `decide` wants to know of a request."""

    @property
    def method(self) -> bytes:
        """As sent, such as b"GET"."""

    @property
    def authority(self) -> bytes:
        """Host with optional port: `:authority`, else the field Host, else empty."""

    @property
    def path(self) -> bytes:
        """Origin-form: path with query, as sent."""

    @property
    def fields(self) -> Sequence[Field]:
        """The header fields in the order in which they came."""


class PlainHead(msgspec.Struct, frozen=True):
    """A head made by hand, for `explain`."""

    method: bytes
    authority: bytes
    path: bytes
    fields: tuple[Field, ...] = ()


_SCHEMES = {b"http": b"http", b"https": b"https"}


def header(head: Head, name: bytes) -> bytes | None:
    """The value of a header field, `name` in lower case; None when it was not sent.

    Several fields of one name are joined by b", ", those of Cookie by b"; " (RFC 9110, 5.3; RFC 9113, 8.2.3).
    Codecs keep Host apart; asked for by name, it is the authority.
    """
    return joined_values(head, name, [value for key, value in head.fields if key == name])


def client_scheme(head: Head, own: bytes, *, is_trusted: bool) -> bytes:
    """b"http" or b"https", as the client has it: where a proxy that we believe ends TLS, it says so.

    `own`: that of our listener.
    """
    given = header(head, b"x-forwarded-proto") if is_trusted else None
    return _SCHEMES.get(given.lower(), own) if given else own


def joined_values(head: Head, name: bytes, values: Sequence[bytes]) -> bytes | None:
    """The same, where all fields of that name are known."""
    if not values:
        return head.authority if name == b"host" else None
    if len(values) == 1:
        return values[0]
    # Elements that are empty mean nothing (RFC 9110, 5.6.1.2), and would end the list in a space.
    return (b"; " if name == b"cookie" else b", ").join(filter(None, values))
