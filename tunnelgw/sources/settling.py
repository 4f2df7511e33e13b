"""When a change can be taken: nothing can before every kind has been listed or is known to be absent. After that, two
things delay a change, for a limited time each.

*Unread objects.* Until the source has tried to fetch them, nothing is taken (see `unread`).

*Kinds that are behind.* If the watch of a kind is broken, objects that refer to that kind would be judged by incomplete
data (see `behind`). A kind that was absent is behind as soon as its definition has come (see `absent`): the kinds of a
bundle are served, and found, one after the other.
"""

from collections.abc import Callable, Iterable

from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.absent import AbsentKinds
from tunnelgw.sources.behind import Behind
from tunnelgw.sources.scope import Part, SecretScope
from tunnelgw.sources.tables import Tables
from tunnelgw.sources.unread import Unread


class Settling:
    """For use by one thread at a time."""

    def __init__(
        self,
        kinds: Iterable[Kind],
        scope: SecretScope,
        tables: Tables,
        unread: Unread,
        patience_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`kinds`: those that the source lists."""
        self._scope = scope
        self._unread = unread
        self._clock = clock
        self._unlisted = {part for kind in kinds for part in scope.parts(kind)}
        self._absent = AbsentKinds(tables.is_there)
        self._behind = Behind(patience_s, clock)
        self._since_s: float | None = None
        """When the oldest change since the last one taken came; None: nothing has changed."""
        self._was_taken = False
        """Whether a change was taken already."""
        self.has_moved = False
        """Whether a part has fallen behind or recovered since then."""

    @property
    def unlisted(self) -> frozenset[Part]:
        """What has been neither listed nor found absent."""
        return frozenset(self._unlisted)

    def are_listed(self, kinds: Iterable[Kind]) -> bool:
        return self._unlisted.isdisjoint(part for kind in kinds for part in self._scope.parts(kind))

    def is_behind(self, kind: Kind) -> bool:
        return (kind, "") in self._behind

    def can_take(self) -> bool:
        if self._since_s is None or self._unlisted:
            return False
        if not self._was_taken:
            return not self._unread.holds_up_first()
        return not (self._behind.holds_up(self._since_s) or self._unread.holds_up(self._since_s))

    def change(self) -> None:
        """Something has changed that is to be taken."""
        if self._since_s is None:
            self._since_s = self._clock()

    def take(self) -> None:
        """All changes until now are taken."""
        self._since_s, self._was_taken, self.has_moved = None, True, False

    def set_listed(self, part: Part) -> None:
        """The objects of the part have been listed, or nothing is to wait for that."""
        kind, _ = part
        if self._absent.drop(kind):
            self.set_behind((kind, ""), is_behind=False)
        self._pass(part)

    def set_absent(self, kind: Kind, *, may_come: bool) -> None:
        """The kind is not served. `may_come`: see `Store.set_absent`."""
        self._absent.add(kind, may_come=may_come)
        self._expect(kind)
        self._pass((kind, ""))

    def set_behind(self, part: Part, *, is_behind: bool) -> None:
        self.has_moved |= self._behind.note(part, is_behind=is_behind)

    def follow(self, entry: Entry) -> None:
        """The object, which may be a definition, has come, changed or gone."""
        if (kind := self._absent.follow(entry)) is not None:
            self._expect(kind)

    def _expect(self, kind: Kind) -> None:
        """The kind is absent: it is behind if it can be expected to be served soon."""
        self.set_behind((kind, ""), is_behind=self._absent.is_expected(kind))

    def _pass(self, part: Part) -> None:
        """Nothing waits for the part's first list any more."""
        if part in self._unlisted:
            self._unlisted.discard(part)
            if not self._unlisted:
                self._unread.note_all_listed()
            self.change()
