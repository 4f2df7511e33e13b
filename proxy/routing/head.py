"""The request head as routing reads it: a few attributes of bytes that both codecs can offer without copying."""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Head(Protocol):
    """What `decide` wants to know of a request."""

    @property
    def method(self) -> bytes:
        """Upper case as sent, such as b"GET"."""

    @property
    def authority(self) -> bytes:
        """Host with optional port: `:authority`, else the field Host, else empty."""

    @property
    def path(self) -> bytes:
        """Origin-form: path with query, as sent."""

    def header(self, name: bytes, /) -> bytes | None:
        """The value of a header field; `name` is lower case. None: not sent.

        A field that was sent several times is joined by b", ", and Cookie by b"; " (RFC 9113, 8.2.3).
        """


class PlainHead(msgspec.Struct, frozen=True):
    """A head made by hand, for `explain` and for health checks."""

    method: bytes
    authority: bytes
    path: bytes
    headers: Mapping[bytes, bytes] = {}
    """Values by lower-case name."""

    def header(self, name: bytes, /) -> bytes | None:
        return self.headers.get(name)
