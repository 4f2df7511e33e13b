"""Stores in the states that their tests begin with."""

import time
from collections.abc import Callable

from tunnelgw.model.kinds import Kind
from tunnelgw.sources.store import Store


def is_ready(store: Store) -> bool:
    return store.wait(time.monotonic())


def listed(*kinds: Kind, clock: Callable[[], float] = time.monotonic) -> Store:
    """A store whose kinds were listed, empty, and taken."""
    store = Store(kinds, clock=clock)
    for kind in kinds:
        store.replace(kind, ())
    store.take()
    return store
