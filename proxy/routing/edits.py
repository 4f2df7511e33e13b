"""Changes of header fields, brought into one form: names to drop, then fields to append.

Every modifier of Gateway API can be said this way: `remove` drops, `set` drops and appends, `add` appends. Two
changes one after another are again one change, so a rule's and a backend's modifiers are joined once, when the table
is compiled, and a request pays for one pass.
"""

from collections.abc import Iterable, Sequence

import msgspec

from proxy import document
from proxy.routing.head import Field


class HeaderEdits(msgspec.Struct, frozen=True, gc=False):
    """First drop all fields of these names, then append these fields."""

    drop: frozenset[bytes] = frozenset()
    append: tuple[Field, ...] = ()

    def then(self, later: "HeaderEdits") -> "HeaderEdits":
        """This change and then `later`, as one."""
        kept = tuple(field for field in self.append if field[0] not in later.drop)
        return HeaderEdits(self.drop | later.drop, kept + later.append)

    def apply(self, fields: Iterable[Field]) -> list[Field]:
        """The changed fields; names in `fields` are lower case."""
        drop = self.drop
        return [field for field in fields if field[0] not in drop] + list(self.append)


def compile_edits(modifier: document.HeaderModifier | document.Unset) -> HeaderEdits | None:
    """The edits of a modifier: it removes, then sets, then adds."""
    if not modifier:
        return None
    replaced = _fields(modifier.set)
    drop = frozenset(name.lower().encode() for name in modifier.remove) | {name for name, _ in replaced}
    return HeaderEdits(drop, tuple(replaced + _fields(modifier.add)))


def joined(first: HeaderEdits | None, second: HeaderEdits | None) -> HeaderEdits | None:
    """One change after another, where either may be absent."""
    if first is None or second is None:
        return first or second
    return first.then(second)


def _fields(values: Sequence[document.HeaderValue]) -> list[Field]:
    """Of names that differ only in case the first counts."""
    fields: dict[bytes, bytes] = {}
    for field in values:
        fields.setdefault(field.name.lower().encode(), field.value.strip().encode())
    return list(fields.items())
