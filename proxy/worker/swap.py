"""From a document to the table in use, in slices between the loop's turns.

Collecting garbage is put off meanwhile: the many new objects would set it off again and again, and each time it would
walk all of them. Afterwards the table is frozen out of its sight. The table before is taken apart in slices too, since
letting go of ten thousand routes at once would stop the loop for a moment.
"""

import gc
import time
from collections.abc import Callable, Iterator

from proxy.document import handover
from proxy.routing import Table, TableBuilder

_ROUTES_PER_STEP = 5


def swap(
    content: memoryview, previous: Table | None, use: Callable[[Table], None], taken: Callable[[float], None]
) -> Iterator[None]:
    """Each step takes some tenths of a millisecond.

    `content` is what `handover.pack` makes; `taken` is called with the seconds from the first step to use.
    """
    began_s = time.monotonic()
    gc.disable()
    try:
        settings, parts = handover.unpack(content)
        builder = TableBuilder(settings, previous)
        yield
        for routes in parts:
            for start in range(0, len(routes), _ROUTES_PER_STEP):
                builder.add_raw_routes(routes[start : start + _ROUTES_PER_STEP])
                yield
        table = builder.finish()
        use(table)
        taken(time.monotonic() - began_s)
        del parts, builder, table
        yield
        if previous is not None:
            yield from previous.dismantle()
    finally:
        gc.enable()
        gc.freeze()
