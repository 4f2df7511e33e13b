"""Whether a WSGI app, or other code, releases a request with its response, or leaves it to the garbage collector.

Daemons collect garbage rarely: requests in cycles would add up to tens of MiB before they are freed.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from werkzeug.test import EnvironBuilder


class _Watched(dict[str, Any]):
    """A dictionary that supports weak references."""


def lets_go(app: Callable[..., Iterable[bytes]], path: str, method: str = "GET", body: bytes = b"") -> bool:
    """Whether the request is released once it has been handled, whatever the outcome."""
    builder = EnvironBuilder(path=path, method=method, data=body, content_type="application/json")
    # Leftovers must be found by looking, not by chance.
    gc.disable()
    try:
        environ = _Watched(builder.get_environ())
        watched = weakref.ref(environ)
        _answered(app, environ)
        del environ
        return watched() is None
    finally:
        gc.enable()


def _answered(app: Callable[..., Iterable[bytes]], environ: _Watched) -> None:
    def start_response(*_: Any) -> Callable[[bytes], object]:
        return lambda _: None

    answer = app(environ, start_response)
    try:
        for _ in answer:
            pass
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()


@contextlib.contextmanager
def uncollected() -> Iterator[Callable[[str], list[Any]]]:
    """Disables garbage collection within the block. The function yielded returns, and forgets, what a package has left
    as garbage since: its objects, and frames of its functions."""
    gc.collect()
    gc.disable()
    others = gc.get_objects()  # keeps what earlier tests hold, in threads that end now, from becoming garbage here
    try:
        yield _garbage_of
    finally:
        gc.enable()
        others.clear()


def _garbage_of(package: str) -> list[Any]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [each for each in gc.garbage if _module_of(each).partition(".")[0] == package]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _module_of(each: Any) -> str:
    frame = each if isinstance(each, FrameType) else getattr(each, "gi_frame", None)
    return str(frame.f_globals["__name__"]) if isinstance(frame, FrameType) else type(each).__module__
