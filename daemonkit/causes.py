"""What is inside an error of requests, urllib3 or the standard library: people see the innermost."""

from collections.abc import Iterator


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """`error` and everything wrapped in it; libraries wrap by argument, by `reason` and by chaining."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        wrapped = (getattr(cause, "reason", None), cause.__cause__, *cause.args)
        waiting.extend(inner for inner in wrapped if isinstance(inner, BaseException))
