"""Lists in statuses that are full, mostly of other controllers' entries: a route's `parents`, a policy's `ancestors`.

What was decided holds, but nobody can see it there. So a line in the log says it, and an Event beside the object, once
until something else is left out. Threads that write statuses call it, for each object one at a time.
"""

from daemonkit.logs import get_logger
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.refs import ParentRef
from tunnelgw.report.events import Recorder
from tunnelgw.translate.verdicts import ObjectId

log = get_logger(__name__)

REASON = "StatusFull"


class FullLists:
    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._told: dict[ObjectId, tuple[str, tuple[ParentRef, ...]]] = {}
        """With the uid of the object."""

    def note(self, id_: ObjectId, item: Object, left_out: tuple[ParentRef, ...]) -> None:
        """`left_out`: for whom the object's status has no room now."""
        if not left_out:
            self._told.pop(id_, None)
            return
        news = (item.metadata.uid, left_out)
        if self._told.get(id_) == news:
            return
        self._told[id_] = news
        names = ", ".join(_name(ref) for ref in left_out)
        field = "ancestors" if id_.kind is Kind.BACKEND_TLS_POLICY else "parents"
        log.warning("status has no room", kind=str(id_.kind), name=str(id_.key), field=field, left_out=names)
        if self._recorder is not None:
            note = f"status.{field} is full, so nothing is said there of {names}; remove entries that are out of date"
            self._recorder.warn(id_.kind, item, REASON, note)


def _name(ref: ParentRef) -> str:
    return f"{ref.kind} {'/'.join(part for part in (ref.namespace, ref.name, ref.section_name) if part)}"
