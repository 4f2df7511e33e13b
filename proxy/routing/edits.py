"""Header modifications in one form: names to drop, then fields to append.

Every modifier of Gateway API can be expressed this way: `remove` drops, `set` drops and appends, `add` appends. Two
successive changes combine into one, so the modifiers of a rule and a backend are joined once, when the table is
compiled, and each request needs only one pass.

Cookie is one field in HTTP/1.1 (RFC 6265, 5.4; RFC 9113, 8.2.3): what is added to it is joined to what is there.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from proxy import document
from proxy.heads import Field

_COOKIE: Final = b"cookie"


class HeaderEdits(msgspec.Struct, frozen=True, gc=False):
    """First drop all fields with these names, then append these fields. Names are in lower case."""

    drop: frozenset[bytes] = frozenset()
    append: tuple[Field, ...] = ()
    adds_cookie: bool = False

    def then(self, later: "HeaderEdits") -> "HeaderEdits":
        """This change and then `later`, as one."""
        kept = tuple(field for field in self.append if field[0] not in later.drop)
        return HeaderEdits(self.drop | later.drop, kept + later.append, self.adds_cookie or later.adds_cookie)

    def apply(self, fields: Iterable[Field]) -> list[Field]:
        """The changed fields; names in `fields` must be in lower case."""
        drop = self.drop
        changed = [field for field in fields if field[0] not in drop] + list(self.append)
        return _with_one_cookie(changed) if self.adds_cookie else changed


def compile_edits(modifier: document.HeaderModifier | document.Unset) -> HeaderEdits | None:
    """The edits of a modifier, which first removes, then sets, then adds; None if there is none."""
    if not modifier:
        return None
    replaced, added = _fields(modifier.set), _fields(modifier.add)
    drop = frozenset(name.lower().encode() for name in modifier.remove) | {name for name, _ in replaced}
    return HeaderEdits(drop, tuple(replaced + added), any(name == _COOKIE for name, _ in added))


def joined(first: HeaderEdits | None, second: HeaderEdits | None) -> HeaderEdits | None:
    """`first`, then `second`, as one change; either may be absent."""
    if first is None or second is None:
        return first or second
    return first.then(second)


def _fields(values: Sequence[document.HeaderValue]) -> list[Field]:
    """The fields with lower-case names; of names that differ only in case, the first counts."""
    fields: dict[bytes, bytes] = {}
    for field in values:
        fields.setdefault(field.name.lower().encode(), field.value.strip().encode())
    return list(fields.items())


def _with_one_cookie(fields: Sequence[Field]) -> list[Field]:
    cookies = [value for name, value in fields if name == _COOKIE and value]
    others = [field for field in fields if field[0] != _COOKIE]
    return [*others, (_COOKIE, b"; ".join(cookies))] if cookies else others
