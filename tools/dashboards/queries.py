"""Expressions of PromQL in the words that dashboards share. Every series is narrowed to what is chosen above it."""

CHOSEN = 'job=~"$job",instance=~"$instance"'
WINDOW = "[$__rate_interval]"
MOST_LINES = 10


def series(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join((CHOSEN, *matchers))}}}"


def rate(counter: str, by: str = "") -> str:
    return total(f"rate({counter}{WINDOW})", by)


def rise(counter: str, by: str = "") -> str:
    """How often within the window, for what should not happen at all."""
    return total(f"increase({counter}{WINDOW})", by)


def total(vector: str, by: str = "") -> str:
    return f"sum by ({by}) ({vector})" if by else f"sum({vector})"


def share(part: str, whole: str) -> str:
    """Nothing, where there is nothing to have a part in."""
    return f"{part} / ({whole} > 0)"


def quantile(fraction: float, histogram: str, by: str = "") -> str:
    """Of the buckets `histogram`; nothing, where nothing was counted."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({fraction:g}, {rate(histogram, labels)}) >= 0"


def most(vector: str) -> str:
    return f"topk({MOST_LINES}, {vector})"


def or_zero(vector: str) -> str:
    return f"{vector} or vector(0)"
