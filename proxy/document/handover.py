"""From what a worker serves to what it shall serve: the difference of two contents as bytes, read in small parts.

A worker that serves nothing yet gets the difference to nothing, which is everything. Routes that refer to a backend
that changed leave and come again, so that nobody has to know who refers to whom. Each part has its length before it;
the first says what leaves, the others hold some dozens of backends or routes each.
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
    """The first part."""

    is_whole: bool
    """Nothing of before stays; then the rest is empty."""
    settings: Settings | None
    """Those from now on; None: as before."""
    backends: tuple[str, ...]
    routes: tuple[int, ...]


class RouteText(msgspec.Struct, frozen=True, array_like=True):
    """A route that comes; see `content.KnownRoute`."""

    number: int
    place: int
    text: msgspec.Raw


class Coming(msgspec.Struct, frozen=True, array_like=True):
    """Another part; all backends come before the first route."""

    backends: tuple[Backend, ...] = ()
    """New, or in place of the one with the same name."""
    routes: tuple[RouteText, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode_leaving = msgspec.json.Decoder(Leaving).decode
_decode_coming = msgspec.json.Decoder(Coming).decode


def pack(before: Content | None, after: Content) -> bytes:
    """What has to be told to somebody who serves `before`."""
    if before is None:
        return _packed(Leaving(True, after.settings, (), ()), [*after.backends.values()], [*after.routes.values()])
    backends = [backend for name, backend in after.backends.items() if before.backends.get(name) != backend]
    changed = {backend.name for backend in backends} & before.backends.keys()
    kept = before.routes.keys() & after.routes.keys()
    kept -= {number for number in kept if not changed.isdisjoint(after.routes[number].backends)} if changed else set()
    if 2 * len(kept) < len(before.routes):
        # Building anew is less work than taking most of it away first.
        return pack(None, after)
    leaving = Leaving(
        False,
        None if before.settings == after.settings else after.settings,
        tuple(before.backends.keys() - after.backends.keys()),
        tuple(before.routes.keys() - kept),
    )
    return _packed(leaving, backends, [after.routes[number] for number in after.routes.keys() - kept])


def unpack(data: memoryview) -> tuple[Leaving, Iterator[Coming]]:
    """What leaves, then what comes, some at a time."""
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
