"""Full lists in statuses, mostly of other controllers' entries: a route's `parents`, a policy's `ancestors`.

What was decided is in force, but the status cannot show it. So it is logged, and recorded as an Event on the object,
once for each change of what is left out. Called by the threads that write statuses; by one at a time for each object.
"""

from collections import OrderedDict

import msgspec

from daemonkit.logs import get_logger
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.refs import ParentRef
from tunnelgw.report.events import Recorder
from tunnelgw.translate.verdicts import ObjectId

log = get_logger(__name__)

REASON = "StatusFull"
_MAX_REMEMBERED = 10_000
"""If more objects than this have full lists at once, they are reported again and again."""


class _Told(msgspec.Struct, frozen=True):
    uid: str
    left_out: tuple[ParentRef, ...]
    is_recorded: bool
    """False: the recorder did not accept the Event, so it is tried again."""


class FullLists:
    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._told: OrderedDict[ObjectId, _Told] = OrderedDict()
        """What was last reported. Includes objects that are gone."""

    def note(self, id_: ObjectId, item: Object, left_out: tuple[ParentRef, ...]) -> None:
        """`left_out`: references for which the object's status has no room now."""
        if not left_out:
            self._told.pop(id_, None)
            return
        told = self._told.get(id_)
        is_news = told is None or (told.uid, told.left_out) != (item.metadata.uid, left_out)
        if told is not None and told.is_recorded and not is_news:
            return
        names = ", ".join(map(str, left_out))
        field = "ancestors" if id_.kind is Kind.BACKEND_TLS_POLICY else "parents"
        if is_news:
            log.warning("status has no room", kind=str(id_.kind), name=str(id_.key), field=field, left_out=names)
        note = f"status.{field} is full, so it says nothing about {names}; remove entries that are out of date"
        is_recorded = self._recorder is None or self._recorder.warn(id_.kind, item, REASON, note)
        self._told[id_] = _Told(item.metadata.uid, left_out, is_recorded)
        if len(self._told) > _MAX_REMEMBERED:
            self._told.popitem(last=False)
