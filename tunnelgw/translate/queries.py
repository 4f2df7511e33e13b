"""Derived values, each computed once, and again only when something that it was computed from has changed.

A *query* is a pure function of a module, `(view, key) -> value`. What it reads from the snapshot and which other
queries it asks is recorded. So an update evaluates only queries that have read a changed entry. If the new value equals
(==) the old one, the old object is kept, and the update ends there; otherwise it goes on to the queries that asked for
the value. So the work grows with what changed, not with what exists.

Queries are evaluated in order of height (a query is higher than all queries that it asks). So each is evaluated at most
once per update, and none sees values of two snapshots. Values that no query asks for any more are dropped. Not
thread-safe.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Index, Objects, Snapshot

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class View(Objects, Protocol):
    """All that a query may read."""

    @property
    def controller_name(self) -> str:
        """GatewayClasses with this controllerName are ours. Never changes."""

    @property
    def home_namespace(self) -> str:
        """The controller's namespace, the default for cluster-scoped objects. Never changes."""

    def ask(self, query: "Query[K, V]", key: K) -> V:
        """The value of another query."""


Query: TypeAlias = Callable[[View, K], V]
Question: TypeAlias = tuple[Query[Any, Any], Hashable]
"""A query with its key."""

_NOTHING: Any = object()

_Nodes: TypeAlias = "_Node | set[_Node] | None"
"""A set of nodes. Most have one member, and a `set` takes as much memory as the rest of a node."""


def _with(nodes: _Nodes, node: "_Node") -> _Nodes:
    if isinstance(nodes, set):
        nodes.add(node)
        return nodes
    return node if nodes is None or nodes is node else {nodes, node}


def _without(nodes: _Nodes, node: "_Node") -> _Nodes:
    if isinstance(nodes, set):
        nodes.discard(node)
        return nodes or None
    return None if nodes is node else nodes


def _members(nodes: _Nodes) -> Iterable["_Node"]:
    if nodes is None:
        return ()
    return nodes if isinstance(nodes, set) else (nodes,)


class _Node:
    """A question with its answer, and what the answer was computed from."""

    __slots__ = (
        "asked",
        "current_in",
        "dependants",
        "height",
        "is_dirty",
        "is_kept",
        "is_running",
        "question",
        "read",
        "value",
    )

    def __init__(self, question: Question) -> None:
        self.question = question
        self.value: Any = _NOTHING
        self.read: tuple[Entry, ...] = ()
        self.asked: tuple[_Node, ...] = ()
        self.dependants: _Nodes = None
        self.height = 0
        self.current_in = 0
        """The last update that found neither this node nor anything below it dirty."""
        self.is_dirty = False
        self.is_kept = False
        self.is_running = False


class Queries:
    """The values of all questions asked so far, for one snapshot after another. Also the `View` that queries get."""

    def __init__(
        self,
        snapshot: Snapshot,
        controller_name: str,
        home_namespace: str,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_step` is called before each evaluation."""
        self._on_step = on_step
        self.controller_name = controller_name
        self.home_namespace = home_namespace
        self.evaluations = 0
        """How many times a query was evaluated."""
        self.snapshot = snapshot
        self._number = 1
        """The number of the current update."""
        self._nodes: dict[Question, _Node] = {}
        self._readers: dict[Entry, _Nodes] = {}
        self._dirty: list[tuple[int, int, _Node]] = []
        """A heap by height; the second number only keeps nodes from being compared."""
        self._loose: list[_Node] = []
        """Nodes that may be unneeded now."""
        self._changed: set[Question] = set()
        self._read: set[Entry] | None = None
        """What the query being evaluated has read; None while no query is evaluated."""
        self._asked: set[_Node] | None = None

    def update(self, snapshot: Snapshot, changed: Iterable[Entry]) -> set[Question]:
        """Move on to the next snapshot, which differs in these entries. Returns kept questions with a new answer."""
        self._sweep()
        self.snapshot = snapshot
        self._number += 1
        for entry in changed:
            for node in _members(self._readers.get(entry)):
                self._soil(node)
        while self._dirty:
            self._evaluate_next()
        self._sweep()
        answered, self._changed = self._changed, set()
        return answered

    def keep(self, query: Query[K, V], key: K) -> V:
        """Answer now, and keep the answer up to date until `let_go`."""
        node = self._current((query, key))
        node.is_kept = True
        value: V = node.value
        return value

    def let_go(self, query: Query[K, V], key: K) -> None:
        """Stop keeping the answer, unless another question needs it."""
        node = self._nodes.get((query, key))
        if node is not None:
            node.is_kept = False
            self._changed.discard(node.question)
            self._loose.append(node)

    def get(self, kind: Kind, key: Key) -> Object | None:
        found = self._look_up(Entry(kind, key))
        assert not isinstance(found, tuple)  # noqa: S101  # only indexes have buckets
        return found

    def bucket(self, index: Index, key: Key) -> tuple[Object, ...]:
        found = self._look_up(Entry(index, key))
        assert isinstance(found, tuple)  # noqa: S101
        return found

    def ask(self, query: Query[K, V], key: K) -> V:
        node = self._current((query, key))
        if self._asked is not None:
            self._asked.add(node)
        elif node.dependants is None:
            self._loose.append(node)
        value: V = node.value
        return value

    def _look_up(self, entry: Entry) -> Object | tuple[Object, ...] | None:
        if self._read is not None:
            self._read.add(entry)
        return self.snapshot.read(entry)

    def _current(self, question: Question) -> _Node:
        node = self._nodes.get(question)
        if node is None:
            node = self._nodes[question] = _Node(question)
            self._evaluate(node)
        else:
            self._refresh(node)
        return node

    def _refresh(self, node: _Node) -> None:
        """Bring a node up to date that a query asks for during an update. Needed only if the node is not lower than the
        nodes still to be evaluated, which can happen if the query did not ask for it before."""
        if node.is_running:
            raise RuntimeError(f"{node.question[0].__name__} of {node.question[1]} asks for itself")
        if not self._dirty or node.height < self._dirty[0][0] or node.current_in == self._number:
            return  # nothing below it is dirty
        for below in node.asked:
            if not below.is_running:
                self._refresh(below)
        if node.is_dirty:
            self._evaluate(node)
        elif any(below.is_running for below in node.asked):
            raise RuntimeError(f"{node.question[0].__name__} of {node.question[1]} asks for who asks for it")
        node.current_in = self._number  # otherwise each query that asks it would walk all paths below it again

    def _evaluate_next(self) -> None:
        height, _, node = heapq.heappop(self._dirty)
        if node.is_dirty:
            if height < node.height:
                self._enqueue(node)
            else:
                self._evaluate(node)

    def _evaluate(self, node: _Node) -> None:
        self._on_step()
        self.evaluations += 1
        outer = self._read, self._asked
        read: set[Entry] = set()
        asked: set[_Node] = set()
        self._read, self._asked = read, asked
        node.is_dirty, node.is_running = False, True
        query, key = node.question
        try:
            value = query(self, key)
        except BaseException:
            self._soil(node)  # to be tried again, since its dependencies are unknown now
            self._loose.extend(asked)
            raise
        finally:
            node.is_running = False
            self._read, self._asked = outer
        node.current_in = self._number
        self._link(node, read, asked)
        if node.value is _NOTHING or value != node.value:
            node.value = value
            if node.is_kept:
                self._changed.add(node.question)
            for dependant in _members(node.dependants):
                self._soil(dependant)

    def _soil(self, node: _Node) -> None:
        if not node.is_dirty:
            node.is_dirty = True
            self._enqueue(node)

    def _enqueue(self, node: _Node) -> None:
        heapq.heappush(self._dirty, (node.height, id(node), node))

    def _link(self, node: _Node, read: set[Entry], asked: set[_Node]) -> None:
        for entry in read.difference(node.read):
            self._readers[entry] = _with(self._readers.get(entry), node)
        for entry in node.read:
            if entry not in read:
                self._stop_reading(node, entry)
        for below in asked.difference(node.asked):
            below.dependants = _with(below.dependants, node)
        for below in node.asked:
            if below not in asked:
                self._stop_asking(node, below)
        node.read, node.asked = tuple(read), tuple(asked)  # sets would need four times the memory
        self._raise(node, 1 + max((below.height for below in asked), default=0))

    def _raise(self, node: _Node, height: int) -> None:
        if height > node.height:
            node.height = height
            for dependant in _members(node.dependants):
                self._raise(dependant, height + 1)

    def _stop_reading(self, node: _Node, entry: Entry) -> None:
        readers = _without(self._readers[entry], node)
        if readers is None:
            del self._readers[entry]
        else:
            self._readers[entry] = readers

    def _stop_asking(self, node: _Node, below: _Node) -> None:
        below.dependants = _without(below.dependants, node)
        if below.dependants is None:
            self._loose.append(below)

    def _sweep(self) -> None:
        while self._loose:
            node = self._loose.pop()
            if node.is_kept or node.dependants is not None or self._nodes.get(node.question) is not node:
                continue
            del self._nodes[node.question]
            node.is_dirty = False
            for entry in node.read:
                self._stop_reading(node, entry)
            for below in node.asked:
                self._stop_asking(node, below)
