"""Calls from a test's thread into a loop's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from proxy.loop import Loop

T = TypeVar("T")


def call_in(loop: Loop, what: Callable[[], T], timeout_s: float) -> T:
    """Call `what` in the loop's thread; exceptions are raised here."""
    done = threading.Event()
    found: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(what())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    loop.call_from_thread(run)
    if not done.wait(timeout_s):
        raise TimeoutError("the loop does not answer")
    if errors:
        raise errors[0]
    return found[0]
