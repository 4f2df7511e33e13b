"""Switches from the table in use to the next one, in slices between the loop's turns.

The garbage collector is off meanwhile: the many new objects would trigger it repeatedly, and each time it would walk
all of them. Once there are enough of them, everything is frozen (`gc.freeze`), so that it ignores them. What only the
old table needed is released in slices too, since releasing ten thousand routes at once would stop the loop for a
moment.
"""

import gc
import time
from collections.abc import Callable, Iterator

from proxy import document
from proxy.document import handover
from proxy.routing import Table, TableBuilder

_ROUTES_PER_STEP = 5
_LEAVING_PER_STEP = 50
_FREEZE_AT = 500
"""In routes. Fewer are little work for the collector, and frequent freezing would keep objects alive that are about to
be freed."""


class Swapper:
    """Makes one change at a time. `table` is the one in use, even after a failed change."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self._unfrozen = 0
        """How many routes were added since the last freeze."""

    def swap(self, content: memoryview, use: Callable[[Table], None], taken: Callable[[float], None]) -> Iterator[None]:
        """Build the next table; each step takes a few tenths of a millisecond.

        `content` comes from `handover.pack`. `use` is called with the table, then `taken` with the seconds since the
        first step.
        """
        began_s = time.monotonic()
        gc.disable()
        try:
            leaving, parts = handover.unpack(content)
            before = self.table
            if before is None or leaving.settings is not None:
                settings = leaving.settings or document.Settings()
            else:
                settings = before.settings
            builder = TableBuilder(settings, None if leaving.is_whole else before)
            yield
            yield from self._build(builder, leaving, parts)
            table = builder.finish()
            use(table)
            self.table = table
            taken(time.monotonic() - began_s)
            yield
            if leaving.is_whole and before is not None:
                yield from before.dismantle()
            else:
                del before
                yield from builder.let_go()
        finally:
            gc.enable()
            if self._unfrozen >= _FREEZE_AT:
                gc.freeze()
                self._unfrozen = 0

    def _build(
        self, builder: TableBuilder, leaving: handover.Leaving, parts: Iterator[handover.Coming]
    ) -> Iterator[None]:
        for start in range(0, len(leaving.routes), _LEAVING_PER_STEP):
            yield from builder.removing_routes(leaving.routes[start : start + _LEAVING_PER_STEP])
            yield
        builder.remove_backends(leaving.backends)
        yield from builder.fill()
        for part in parts:
            builder.put_backends(part.backends)
            for start in range(0, len(part.routes), _ROUTES_PER_STEP):
                routes = part.routes[start : start + _ROUTES_PER_STEP]
                yield from builder.adding_routes(
                    (one.number, one.place, document.decode_route(one.text)) for one in routes
                )
                self._unfrozen += len(routes)
                yield
