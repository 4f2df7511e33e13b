"""Who sends a request, and what conditions see of it.

Fields that describe clients may come from anybody, and routes must not be chosen by what an unknown client says about
itself. So conditions see these fields as a backend would: dropped or written anew, unless the sender is believed. All
others they see as sent.
"""

from collections.abc import Sequence
from typing import Protocol

from proxy.heads import Field
from proxy.routing.clientfields import ClientFields
from proxy.routing.cors import REQUEST_HEADERS
from proxy.routing.head import Head
from proxy.routing.listener import Listener


class Sender(Protocol):
    """What routing asks about the sender of a request."""

    @property
    def is_trusted(self) -> bool:
        """It is a trusted proxy or the tunnel's edge, whose X-Forwarded-Proto is believed."""

    def forwarded_fields(self, listener: Listener) -> Sequence[Field]:
        """The fields of the request as a backend would get them, before the filters of a rule."""


class Stranger:
    """A client that is not believed, and of which nothing is known."""

    is_trusted = False

    def forwarded_fields(self, _listener: Listener) -> Sequence[Field]:
        return ()


STRANGER = Stranger()


class SeenHead:
    """A head as conditions see it; only the first that asks for a field has the work done."""

    __slots__ = ("_client_fields", "_fields", "_head", "_listener", "_sender", "authority", "method", "path")

    def __init__(self, head: Head, listener: Listener, sender: Sender, client_fields: ClientFields) -> None:
        self.method = head.method
        self.authority = head.authority
        self.path = head.path
        self._head = head
        self._listener = listener
        self._sender = sender
        self._client_fields = client_fields
        self._fields: Sequence[Field] | None = None

    @property
    def fields(self) -> Sequence[Field]:
        fields = self._fields
        if fields is None:
            fields = self._fields = self._seen()
        return fields

    def _seen(self) -> Sequence[Field]:
        ours = self._client_fields
        fields = [field for field in self._head.fields if field[0] not in ours]
        if not self._sender.is_trusted:
            fields = [
                (name, self._believed(value)) if name == REQUEST_HEADERS else (name, value) for name, value in fields
            ]
        fields += [field for field in self._sender.forwarded_fields(self._listener) if field[0] in ours]
        return fields

    def _believed(self, announced: bytes) -> bytes:
        """The names of fields that a preflight announces, without those that the next request would have in vain."""
        names = announced.split(b",")
        return b",".join(name for name in names if name.strip().lower() not in self._client_fields)
