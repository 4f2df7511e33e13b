"""Makes the kernel refuse to watch sockets: it limits how many epoll watches, and may lack memory for one more."""

from __future__ import annotations

import contextlib
import errno
import selectors
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


@contextlib.contextmanager
def watches_refused(handler: type, times: int | None = None) -> Iterator[Callable[[], int]]:
    """No socket is watched for a handler of this class, for good or `times` times. Yields how many were refused."""
    register = selectors.EpollSelector.register
    refused = 0

    def refuse(selector: selectors.EpollSelector, sock: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        nonlocal refused
        if isinstance(data, handler) and (times is None or refused < times):
            refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return register(selector, sock, events, data)

    with mock.patch.object(selectors.EpollSelector, "register", refuse):
        yield lambda: refused
