"""Encodes the difference between the content a worker serves and the one it is to serve, to be read in small parts.

A worker that serves nothing yet gets everything. A route that refers to a changed backend is removed and added again,
so that the worker need not track references. The first part (`Leaving`) says what to remove; the others (`Coming`)
hold up to 50 backends or routes each. Every part is JSON, preceded by its length as a 32-bit big-endian integer.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

import msgspec

from proxy.document.content import Content, KnownRoute
from proxy.document.model import Settings
from proxy.document.targets import Backend

_PIECES_PER_PART = 50
_LENGTH = Struct(">I")


class Leaving(msgspec.Struct, frozen=True, array_like=True):
    """The first part: what to remove, and new settings."""

    is_whole: bool
    """Drop everything that was served before; then `backends` and `routes` are empty."""
    settings: Settings | None
    """The new settings; None: unchanged."""
    backends: tuple[str, ...]
    routes: tuple[int, ...]


class RouteText(msgspec.Struct, frozen=True, array_like=True):
    """A route to add; fields as in `content.KnownRoute`."""

    number: int
    place: int
    text: msgspec.Raw


class Coming(msgspec.Struct, frozen=True, array_like=True):
    """A part with what to add; parts with backends come before those with routes."""

    backends: tuple[Backend, ...] = ()
    """New ones, and replacements for those with the same name."""
    routes: tuple[RouteText, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode_leaving = msgspec.json.Decoder(Leaving).decode
_decode_coming = msgspec.json.Decoder(Coming).decode


def pack(before: Content | None, after: Content) -> bytes:
    """Encode what a worker that serves `before` needs in order to serve `after`; None: it serves nothing yet."""
    if before is None:
        return _packed(Leaving(True, after.settings, (), ()), [*after.backends.values()], [*after.routes.values()])
    backends = [backend for name, backend in after.backends.items() if before.backends.get(name) != backend]
    changed = {backend.name for backend in backends} & before.backends.keys()
    kept = before.routes.keys() & after.routes.keys()
    kept -= {number for number in kept if not changed.isdisjoint(after.routes[number].backends)} if changed else set()
    if 2 * len(kept) < len(before.routes):
        # Building from scratch is less work than removing most routes first.
        return pack(None, after)
    leaving = Leaving(
        False,
        None if before.settings == after.settings else after.settings,
        tuple(before.backends.keys() - after.backends.keys()),
        tuple(before.routes.keys() - kept),
    )
    return _packed(leaving, backends, [after.routes[number] for number in after.routes.keys() - kept])


def unpack(data: memoryview) -> tuple[Leaving, Iterator[Coming]]:
    """What to remove, and an iterator that decodes one part of what to add at a time."""
    parts = _parts(data)
    return _decode_leaving(next(parts)), map(_decode_coming, parts)


def _packed(leaving: Leaving, backends: Sequence[Backend], routes: Sequence[KnownRoute]) -> bytes:
    parts = [_encode(leaving)]
    for at in range(0, len(backends), _PIECES_PER_PART):
        parts.append(_encode(Coming(backends=tuple(backends[at : at + _PIECES_PER_PART]))))
    for at in range(0, len(routes), _PIECES_PER_PART):
        texts = (RouteText(one.number, one.place, one.text) for one in routes[at : at + _PIECES_PER_PART])
        parts.append(_encode(Coming(routes=tuple(texts))))
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))


def _parts(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        yield data[start:at]
