"""The errors wrapped in an error of requests, urllib3 or the standard library. People are shown the innermost one."""

import traceback
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


def forget_frames(error: BaseException) -> None:
    """Release the local variables of the calls through which `error` was raised, which may hold a reply of many MiB.

    They live as long as the error is kept. Errors that refer to each other keep them until the garbage collector runs,
    which is rare in daemons.
    """
    for each in _chained(error):
        each.__traceback__ = None


def empty_frames(error: BaseException) -> None:
    """Release these variables too, but keep the stack, which is to be logged."""
    for each in _chained(error):
        traceback.clear_frames(each.__traceback__)


def _chained(error: BaseException) -> Iterator[BaseException]:
    """`error` and what it was raised from, or while handling."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        seen.add(id(each))
        yield each
        chained = (each.__cause__, each.__context__)
        waiting.extend(inner for inner in chained if inner is not None and id(inner) not in seen)
