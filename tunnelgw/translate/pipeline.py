"""The whole translation, kept up to date: verdicts on all objects, documents of all data planes, tunnels' hostnames.

For each object of a kind that has a status, one question is kept up to date. Totals over many objects (routes of a
listener, users of a backend, hostnames of a tunnel) are not queries, which would read all objects again. They are
counted: a new answer first takes back what the previous one added.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from proxy import document
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.translate.backends import BackendId, backend
from tunnelgw.translate.classes import class_verdict
from tunnelgw.translate.gateways import SHARED
from tunnelgw.translate.gatewayverdicts import gateway_verdict, set_verdict
from tunnelgw.translate.policies import PolicyVerdict, policy_verdict
from tunnelgw.translate.proxyconfig import DataPlaneDocument, plane_settings
from tunnelgw.translate.queries import K, Queries, Query, Question, V
from tunnelgw.translate.routes import PlanePart, RouteParts, route_parts
from tunnelgw.translate.slots import ListenerId
from tunnelgw.translate.verdicts import GatewayVerdict, ListenerSetVerdict, ObjectId, RouteVerdict, TunnelHost, Verdict

AnyVerdict: TypeAlias = Verdict | PolicyVerdict
T = TypeVar("T", bound=Hashable)

_ROOTS: Mapping[Kind, Query[Any, Any]] = {
    Kind.GATEWAY_CLASS: class_verdict,
    Kind.GATEWAY: gateway_verdict,
    Kind.LISTENER_SET: set_verdict,
    Kind.HTTP_ROUTE: route_parts,
    Kind.GRPC_ROUTE: route_parts,
    Kind.BACKEND_TLS_POLICY: policy_verdict,
}
"""The query for each object of a kind that has a status."""


class Differences(Part, frozen=True):
    """What an update changed."""

    verdicts: frozenset[ObjectId] = frozenset()
    data_planes: frozenset[str] = frozenset()
    """Data planes whose document changed, or that were added or removed."""
    tunnels: frozenset[str] = frozenset()
    """Tunnels whose hostnames changed."""


class Translation:
    """The result for the objects of a snapshot. `update` moves on to the next snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        controller_name: str,
        home_namespace: str,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_step` is called repeatedly during long work."""
        self.controller_name = controller_name
        self.home_namespace = home_namespace
        self._queries = Queries(snapshot, controller_name, home_namespace, on_step)
        self._answers: dict[Question, Any] = {}
        self._attached: Counter[ListenerId] = Counter()
        self._users: dict[BackendId, Counter[str]] = {}
        """How many routes of each data plane use a backend."""
        self._gateways: Counter[str] = Counter()
        """How many Gateways each data plane has."""
        self._hosts: Counter[TunnelHost] = Counter()
        """How many routes want a hostname of a tunnel."""
        self._documents: dict[str, DataPlaneDocument] = {}
        self._closed: set[str] = set()
        self._verdicts: set[ObjectId] = set()
        self._planes: set[str] = set()
        self._tunnels: set[str] = set()
        self._open(SHARED)
        for kind in _ROOTS:
            for key in snapshot.all(kind):
                self._settle(_question(kind, key))
        self._told()

    @property
    def snapshot(self) -> Snapshot:
        return self._queries.snapshot

    @property
    def evaluations(self) -> int:
        """How many queries have been evaluated so far."""
        return self._queries.evaluations

    @property
    def documents(self) -> Mapping[str, DataPlaneDocument]:
        """What each data plane should serve, by its id."""
        return self._documents

    def hosts(self, tunnel: str) -> frozenset[str]:
        """The hostnames that a tunnel must send to our proxies; an empty one stands for every host."""
        return frozenset(host.hostname for host in self._hosts if host.tunnel == tunnel)

    @property
    def tunnels(self) -> frozenset[str]:
        """Tunnels that lead to at least one route."""
        return frozenset(host.tunnel for host in self._hosts)

    @property
    def routes(self) -> Iterator[ObjectId]:
        """All routes, including those that are not ours to judge."""
        return (key for query, key in self._answers if query is route_parts and isinstance(key, ObjectId))

    def route_hosts(self, id_: ObjectId) -> tuple[TunnelHost, ...]:
        """The hostnames that tunnels must send to this route."""
        answer = self._answers.get(_question(*id_))
        return answer.hosts if isinstance(answer, RouteParts) else ()

    def verdict(self, id_: ObjectId) -> AnyVerdict | None:
        """What an object's status must say. None: nothing, since the object is not ours to judge or does not exist."""
        answer = self._answers.get(_question(*id_)) if id_.kind in _ROOTS else None
        if isinstance(answer, RouteParts):
            return answer.verdict
        if isinstance(answer, GatewayVerdict | ListenerSetVerdict):
            return self._counted(id_, answer)
        found: AnyVerdict | None = answer
        return found

    def keep(self, query: Query[K, V], key: K) -> V:
        """The answer to a question of others, kept up to date from now on: the same object until it changes."""
        return self._queries.keep(query, key)

    def update(self, snapshot: Snapshot, changed: Iterable[Entry]) -> Differences:
        """Move on to a snapshot that differs in these entries."""
        changed = [*changed]
        questions: set[Question] = set()
        for table, key in changed:
            if isinstance(table, Kind) and table in _ROOTS:
                if key in snapshot.all(table):
                    questions.add(_question(table, key))
                else:
                    self._drop(_question(table, key))
        questions |= self._queries.update(snapshot, changed) & self._answers.keys()
        for question in questions:
            self._settle(question)
        for plane in self._closed - self._gateways.keys():
            self._documents.pop(plane, None)
        self._closed = set()
        return self._told()

    def _told(self) -> Differences:
        told = Differences(frozenset(self._verdicts), frozenset(self._planes), frozenset(self._tunnels))
        self._verdicts, self._planes, self._tunnels = set(), set(), set()
        return told

    def _counted(self, id_: ObjectId, verdict: GatewayVerdict | ListenerSetVerdict) -> AnyVerdict:
        listeners = tuple(
            msgspec.structs.replace(listener, attached_routes=self._attached[ListenerId(id_, listener.name)])
            for listener in verdict.listeners
        )
        return msgspec.structs.replace(verdict, listeners=listeners)

    def _settle(self, question: Question) -> None:
        if question in self._answers or question[0] not in (backend, plane_settings):
            self._replace(question, self._queries.keep(*question))

    def _drop(self, question: Question) -> None:
        self._replace(question, None)
        self._queries.let_go(*question)
        self._answers.pop(question, None)

    def _replace(self, question: Question, new: Any) -> None:
        """Take back what the previous answer added, and add what the new one adds."""
        query: Query[Any, Any]
        key: Any
        query, key = question
        old = self._answers.get(question)
        self._answers[question] = new
        if old is new:
            return
        if query is route_parts:
            self._count_route(key, old or _NO_PARTS, new or _NO_PARTS)
        elif query is backend:
            self._put_backend(key, new)
        elif query is plane_settings:
            self._put_settings(key, new)
        else:
            if query is gateway_verdict:
                self._count_gateway(old, new)
            self._verdicts.add(_object(query, key))

    def _count_gateway(self, old: Verdict | None, new: Verdict | None) -> None:
        planes = [{verdict.data_plane} if isinstance(verdict, GatewayVerdict) else set() for verdict in (old, new)]
        for plane in _came_or_went(self._gateways, *planes):
            if plane == SHARED:
                continue
            if plane in self._gateways:
                self._open(plane)
            else:
                self._close(plane)

    def _open(self, plane: str) -> None:
        self._documents.setdefault(plane, DataPlaneDocument())
        question: Question = (plane_settings, plane)
        self._answers.setdefault(question, None)
        self._settle(question)

    def _close(self, plane: str) -> None:
        """Called in the same update that removes the plane's routes."""
        self._queries.let_go(plane_settings, plane)
        self._answers.pop((plane_settings, plane), None)
        self._closed.add(plane)
        self._planes.add(plane)

    def _count_route(self, id_: ObjectId, old: RouteParts, new: RouteParts) -> None:
        if old.verdict != new.verdict:
            self._verdicts.add(id_)
        self._verdicts.update(listener.owner for listener in _recount(self._attached, {*old.attached}, {*new.attached}))
        self._tunnels.update(host.tunnel for host in _came_or_went(self._hosts, {*old.hosts}, {*new.hosts}))
        for plane in {part.data_plane: None for part in (*old.planes, *new.planes)}:
            self._put_routes(plane, _part(old, plane), _part(new, plane))

    def _put_routes(self, plane: str, old: PlanePart, new: PlanePart) -> None:
        content = self._documents.setdefault(plane, DataPlaneDocument())
        staying = {(route.name, route.kind) for route in new.routes}
        for route in old.routes:
            if (route.name, route.kind) not in staying:
                content.remove_route(route)
        for route in new.routes:
            content.put_route(route)
        if old.routes != new.routes:
            self._planes.add(plane)
        self._use_backends(plane, {*old.backends}, {*new.backends})

    def _use_backends(self, plane: str, old: set[BackendId], new: set[BackendId]) -> None:
        for id_ in old ^ new:
            users = self._users.setdefault(id_, Counter())
            if not _came_or_went(users, {plane} if id_ in old else set(), {plane} if id_ in new else set()):
                continue
            self._planes.add(plane)
            if plane in users:
                made = self._queries.keep(backend, id_)
                self._documents[plane].put_backend(made)
                self._replace((backend, id_), made)  # if this update changed it, other documents need it too
            else:
                self._documents[plane].remove_backend(id_.name)
            if not users:
                del self._users[id_], self._answers[backend, id_]
                self._queries.let_go(backend, id_)

    def _put_backend(self, id_: BackendId, made: document.Backend) -> None:
        for plane in self._users[id_]:
            self._documents[plane].put_backend(made)
            self._planes.add(plane)

    def _put_settings(self, plane: str, settings: document.Settings) -> None:
        self._documents[plane].settings = settings
        self._planes.add(plane)


_NO_PARTS = RouteParts(RouteVerdict(()))


def _question(kind: Kind, key: Key) -> Question:
    query = _ROOTS[kind]
    if query is route_parts:
        return query, ObjectId(kind, key)
    return query, key.name if query is class_verdict else key


_KINDS = {query: kind for kind, query in _ROOTS.items()}


def _object(query: Query[Any, Any], key: Any) -> ObjectId:
    return ObjectId(_KINDS[query], Key("", key) if query is class_verdict else key)


def _part(parts: RouteParts, plane: str) -> PlanePart:
    return next((part for part in parts.planes if part.data_plane == plane), PlanePart(plane, (), ()))


def _recount(counts: Counter[T], old: set[T], new: set[T]) -> set[T]:
    """Count the members of `new` instead of those of `old`. Returns the members whose count changed."""
    for member in (changed := old ^ new):
        counts[member] += 1 if member in new else -1
        if not counts[member]:
            del counts[member]
    return changed


def _came_or_went(counts: Counter[T], old: set[T], new: set[T]) -> list[T]:
    """Likewise, but returns only members whose count was zero before or is zero now."""
    return [member for member in _recount(counts, old, new) if counts.get(member, 0) == (member in new)]
