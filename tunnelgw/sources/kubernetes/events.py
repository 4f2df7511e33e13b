"""Kubernetes Events (events.k8s.io/v1) for what people must see on an object; repeats are counted in one Event.

A repeated Event becomes a series of the first one. Events are best effort: one thread sends them from a queue of
limited length, and what cannot be sent is dropped with a log line.
"""

import queue
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from daemonkit.logs import get_logger
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object
from tunnelgw.sources.kubernetes.failures import ApiServerError, Refused
from tunnelgw.sources.kubernetes.server import ApiServer

_MOST_QUEUED = 1000
_MOST_REMEMBERED = 4096
_LONGEST_NOTE_BYTES = 1024
_LONGEST_NAME = 200
"""How much of the object's name goes into the Event's own name, which may have 253 characters."""
_LONGEST_CONTROLLER = 63
"""The length limit for the part after the slash."""
_SERIES_PERIOD_S = 60.0
_REMEMBERED_S = 1800.0
_IDLE_S = 1.0
_TIMEOUT_S = 10.0

_log = get_logger("tunnelgw.sources.kubernetes")


class _Said(msgspec.Struct):
    """An Event that was already recorded."""

    path: str
    """Its path in the API; empty until it has been sent."""
    first_s: float
    last_sent_s: float
    count: int = 1


class _Order(msgspec.Struct):
    key: tuple[str, str, str]
    said: _Said
    path: str
    body: bytes


class EventRecorder:
    """Any thread may call `warn`."""

    def __init__(
        self,
        server: ApiServer,
        controller: str,
        instance: str,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`controller`: our controller name. `instance`: the name of this replica."""
        self._server = server
        self._controller = _qualified(controller)
        self._instance = instance
        self._stop = stop
        self._clock = clock
        self._lock = threading.Lock()
        self._said: OrderedDict[tuple[str, str, str], _Said] = OrderedDict()
        self._orders: queue.Queue[_Order] = queue.Queue(_MOST_QUEUED)
        self._limited = _log.every(60.0)

    def warn(self, kind: Kind, item: Object, reason: str, note: str) -> bool:
        """`reason`: one word in camel case. Never blocks, never raises. False: dropped, since too many are waiting."""
        note = _cut(note)
        key = (item.metadata.uid, reason, note)
        now_s = self._clock()
        with self._lock:
            said = self._said.get(key)
            if said is not None and now_s - said.first_s < _REMEMBERED_S:
                said.count += 1
                if not said.path or now_s - said.last_sent_s < _SERIES_PERIOD_S:
                    return True
                if is_taken := self._take(_Order(key, said, said.path, self._series(said.count))):
                    said.last_sent_s = now_s
            else:
                said = _Said("", now_s, now_s)
                if is_taken := self._take(_Order(key, said, *self._event(kind, item, reason, note))):
                    self._remember(key, said)
        if not is_taken:
            self._limited.warning("event dropped", "too many are waiting", reason=reason, kind=str(kind))
        return is_taken

    def run(self) -> None:
        """The target of a thread; runs until `stop` is set."""
        while not self._stop.is_set():
            try:
                order = self._orders.get(timeout=_IDLE_S)
            except queue.Empty:
                continue
            try:
                self._send(order)
            except ApiServerError as error:
                self._limited.warning("event dropped", error, reason=order.key[1])
                with self._lock:
                    self._said.pop(order.key, None)  # so that it can be recorded anew

    def _take(self, order: _Order) -> bool:
        try:
            self._orders.put_nowait(order)
        except queue.Full:
            return False
        return True

    def _remember(self, key: tuple[str, str, str], said: _Said) -> None:
        self._said[key] = said
        self._said.move_to_end(key)
        if len(self._said) > _MOST_REMEMBERED:
            self._said.popitem(last=False)

    def _send(self, order: _Order) -> None:
        if order.said.path:
            try:
                self._server.request(
                    "PATCH", order.path, body=order.body, content_type=_MERGE_PATCH, timeout_s=_TIMEOUT_S
                )
            except Refused as refusal:
                if refusal.status_code != HTTPStatus.NOT_FOUND:
                    raise
                with self._lock:
                    self._said.pop(order.key, None)  # it has expired in the cluster
            return
        self._server.request("POST", order.path.rpartition("/")[0], body=order.body, timeout_s=_TIMEOUT_S)
        with self._lock:
            order.said.path = order.path

    def _event(self, kind: Kind, item: Object, reason: str, note: str) -> tuple[str, bytes]:
        """The path and body of a new Event."""
        resource = RESOURCES[kind]
        metadata = item.metadata
        regarding = {
            "apiVersion": f"{resource.group}/{resource.versions[0]}".lstrip("/"),
            "kind": str(kind),
            "name": metadata.name,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            **({"namespace": metadata.namespace} if metadata.namespace else {}),
        }
        name = f"{metadata.name[:_LONGEST_NAME].rstrip('-.')}.{uuid.uuid4().hex[:16]}"
        namespace = metadata.namespace or "default"  # where Events about cluster-scoped objects go
        body = msgspec.json.encode(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "eventTime": _timestamp(),
                "type": "Warning",
                "reason": reason,
                "note": note,
                "action": "Reconcile",
                "regarding": regarding,
                "reportingController": self._controller,
                "reportingInstance": self._instance[:128],
            }
        )
        return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}", body

    def _series(self, count: int) -> bytes:
        return msgspec.json.encode({"series": {"count": count, "lastObservedTime": _timestamp()}})


_NO_LABEL = re.compile(r"[^A-Za-z0-9._-]+")
_MERGE_PATCH = "application/merge-patch+json"


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _qualified(controller: str) -> str:
    """The closest name that an Event allows: only a label after the domain, whereas a GatewayClass allows a path."""
    domain, _, path = controller.partition("/")
    label = _NO_LABEL.sub("-", path).strip("-._")[:_LONGEST_CONTROLLER].rstrip("-._")
    return f"{domain}/{label}" if label else domain


def _cut(note: str) -> str:
    """Cut to the length that an Event allows, between two characters."""
    return note.encode()[:_LONGEST_NOTE_BYTES].decode("utf-8", "ignore")
