"""How long to wait between attempts. Pure: jitter, the clock and the waiting itself are left to the caller."""

from collections.abc import Iterator


def doubling(first_s: float, longest_s: float) -> Iterator[float]:
    """`first_s`, then doubled each time up to `longest_s`, which is repeated for ever."""
    # Imported here: it imports asyncio, which would slow down every start, and most things never fail.
    import backoff

    waits = backoff.expo(factor=first_s, max_value=longest_s)
    next(waits)  # backoff's generators begin with an empty item
    yield from waits
