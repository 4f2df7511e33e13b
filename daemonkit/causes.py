"""What is inside an error of requests, urllib3 or the standard library (people see the innermost), and behind it."""

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
    """Let go of all that the calls had at hand which `error` came through, a reply of many MiB for instance.

    Who keeps an error keeps that too; so do errors that know each other, until garbage is looked for, which daemons do
    rarely.
    """
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        seen.add(id(each))
        each.__traceback__ = None
        chained = (each.__cause__, each.__context__)
        waiting.extend(inner for inner in chained if inner is not None and id(inner) not in seen)
