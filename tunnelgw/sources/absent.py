"""Kinds that are not served, and which of them can be expected soon, since their definition has come. Pure."""

from collections.abc import Callable

from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry

_DEFINITIONS = {
    kind: Entry(Kind.CUSTOM_RESOURCE_DEFINITION, Key("", f"{resource.plural}.{resource.group}"))
    for kind, resource in RESOURCES.items()
    if resource.is_optional
}
_DEFINED_BY = {definition: kind for kind, definition in _DEFINITIONS.items()}


class AbsentKinds:
    def __init__(self, is_there: Callable[[Entry], bool]) -> None:
        """`is_there`: whether an object exists, and is not being deleted."""
        self._is_there = is_there
        self._may_come: dict[Kind, bool] = {}
        """Whether it may be served soon after its definition has come."""

    def add(self, kind: Kind, *, may_come: bool) -> None:
        """`may_come` False: the definition that is there now does not count."""
        self._may_come[kind] = may_come or not self._is_defined(kind)

    def drop(self, kind: Kind) -> bool:
        """The kind is served. Returns whether that could be expected."""
        return self._may_come.pop(kind, False)

    def is_expected(self, kind: Kind) -> bool:
        return self._may_come[kind] and self._is_defined(kind)

    def follow(self, entry: Entry) -> Kind | None:
        """The object has come, changed or gone. Returns the absent kind that it defines, if it does."""
        kind = _DEFINED_BY.get(entry)
        if kind is None or kind not in self._may_come:
            return None
        self._may_come[kind] |= not self._is_defined(kind)  # the next one will be another one
        return kind

    def _is_defined(self, kind: Kind) -> bool:
        return kind in _DEFINITIONS and self._is_there(_DEFINITIONS[kind])
