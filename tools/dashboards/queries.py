"""PromQL expressions that the dashboards share. Every series is restricted to the chosen jobs and instances."""

CHOSEN = 'job=~"$job",instance=~"$instance"'
PROCESS = "cluster, namespace, job, instance"
"""Labels that tell processes apart: Pods of several clusters may have the same job and address."""
WINDOW = "[$__rate_interval]"
MOST_LINES = 10


def series(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join((CHOSEN, *matchers))}}}"


def rate(counter: str, by: str = "") -> str:
    return total(f"rate({counter}{WINDOW})", by)


def rise(counter: str, by: str = "") -> str:
    """How many times within the window, for what should never happen."""
    return total(f"increase({counter}{WINDOW})", by)


def total(vector: str, by: str = "") -> str:
    return f"sum by ({by}) ({vector})" if by else f"sum({vector})"


def share(part: str, whole: str) -> str:
    """No value where the whole is zero."""
    return f"{part} / ({whole} > 0)"


def quantile(fraction: float, histogram: str, by: str = "") -> str:
    """A quantile of the histogram with these buckets; no value where nothing was counted."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({fraction:g}, {rate(histogram, labels)}) >= 0"


def most(vector: str) -> str:
    return f"topk({MOST_LINES}, {vector})"


def or_zero(vector: str) -> str:
    return f"{vector} or vector(0)"
