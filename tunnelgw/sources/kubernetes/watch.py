"""Follows one kind: find it, list it in pages, watch it from there, and start again when the watch ends.

    why the watch ends                                    what follows
    the server's time is up, or the connection broke      a watch from the last version
    410: the version is too old for the server            a list; the store keeps what it has until that is complete
    404: a kind with a CRD does not exist any more        discovery; the store forgets its objects, a while later if
                                                          they still exist, since other versions are served
    the kind's definition has changed                     a list, and another one later: events lack new fields
    403, for half a minute                                a list now and then: only the right to watch may be missing
    too soon, and the server's version is older than ours a list: a backup was restored
    401, 429, 500 or 503                                  a watch from the last version
    any other refusal                                     a list

Where something went wrong, a wait comes first. Waits have full jitter under a limit that doubles while nothing
improves, and are added to the time that the server asks for. If the server could not be reached and refuses now, that
is an improvement: a starting server refuses for a second or two. If it did not answer, waits end soon after it has
answered any thread: otherwise objects that refer to several kinds would be judged for many seconds by only those kinds
that came back first.
"""

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

import msgspec

from daemonkit.logs import LimitedLogger, get_logger
from tunnelgw.model.kinds import Kind, Resource
from tunnelgw.model.meta import Key, Object
from tunnelgw.sources.kubernetes.decode import Event, ObjectDecoder, Rejected
from tunnelgw.sources.kubernetes.discovery import Bell, find, other_versions
from tunnelgw.sources.kubernetes.failures import ApiServerError, Refused, Unreachable
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.setbacks import Restart, Setbacks
from tunnelgw.sources.references import REFERRING, WITH_DATA
from tunnelgw.sources.scope import Part
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable

# For these kinds metadata is enough: whole objects are large.
_METADATA_ONLY: Final = frozenset({Kind.CUSTOM_RESOURCE_DEFINITION, Kind.NAMESPACE})
_PARTIAL: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
# Not fetched: releases of charts can be a megabyte each, and tokens are not certificates.
LEFT_OUT_SECRETS: Final = ("helm.sh/release.v1", "kubernetes.io/service-account-token")
_SELECTED_SECRETS: Final = ",".join(f"type!={type_}" for type_ in LEFT_OUT_SECRETS)

_PASSING: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
"""Refusals that say nothing about the version from which a watch was to start."""
_MOST_PAGES_WITHOUT_NEWS: Final = 100
"""In a row. The API allows empty pages, of which all objects were filtered out."""
_SOON_S: Final = 1.0
"""How long to wait even if other threads get answers: only this request may be failing."""
_CATCHING_UP_S: Final = 0.2
"""By then a new watch has reported what was missed, unless that is very much."""
_NOT_SOON_S: Final = 1.0
"""If it is searched for as rarely as that, a kind that is served in other versions will not be in ours in a moment. For
a moment after a definition was created, discovery may have only some of its versions."""
_STRETCH: Final = 2.0
"""The search for a kind may wait longer than the retry of a broken connection, by this factor."""

_log = get_logger("tunnelgw.sources.kubernetes")


class Timing(msgspec.Struct, frozen=True):
    watch_s: float = 55.0
    """The server ends a watch after this time plus a random part of up to a tenth."""
    silence_s: float = 75.0
    """A watch that has been silent for longer than this is abandoned."""
    longest_s: float = 150.0
    """A watch is abandoned after this time even if a part of an event comes now and then."""
    page_s: float = 300.0
    """For one page of a list, however slowly it comes."""
    first_wait_s: float = 0.2
    longest_wait_s: float = 15.0
    forbidden_s: float = 5.0
    """A missing permission is reported only after this time: a server that has just started does not know all roles."""
    closed_s: float = 60.0
    """If listing the Secrets of a namespace is forbidden this long, a starting controller stops waiting for them."""
    poll_s: float = 30.0
    """How often to search for a kind that is not installed, and to list one that may be listed, but not watched."""
    unserved_s: float = 10.0
    """How long the objects of a kind are kept that is served in other versions only: somebody may be replacing its
    definition."""
    page_size: int = 500
    page_size_with_data: int = 50
    """For Secrets and ConfigMaps, which can be a megabyte each."""


_SETTLED_S: Final = 10.0
"""By this long after a change of a definition, all servers of a cluster know it. Earlier lists are repeated."""


class _Absence:
    """A kind is served in none of our versions."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.instead: tuple[str, ...] | None = None
        """The versions in which it is served instead; None: we have not asked yet."""
        self.may_come = True
        """Whether it may be served soon after its definition has come."""

    def learn(self, instead: tuple[str, ...] | None) -> bool:
        """Returns whether this is news. None: it cannot be determined now."""
        before = self.instead
        self.instead = (before or ()) if instead is None else instead
        return self.instead != before


OnRestart: TypeAlias = Callable[[Part, Restart, ApiServerError], None]


class Shared(NamedTuple):
    """What all watches of a source share."""

    server: ApiServer
    store: Store
    bell: Bell
    stop: threading.Event
    timing: Timing
    on_restart: OnRestart
    """Called by the watches' threads."""
    log: LimitedLogger
    """For problems that affect all watches."""


class Watch:
    """`run` is the target of a thread; it runs until `stop` is set."""

    def __init__(self, resource: Resource, shared: Shared, namespace: str = "") -> None:
        """`namespace`: the only one to follow; empty: all."""
        self._resource = resource
        self._namespace = namespace
        self._kind = resource.kind
        self._server = shared.server
        self._store = shared.store
        self._bell = shared.bell
        self._stop = shared.stop
        self._timing = shared.timing
        self._on_restart = shared.on_restart
        self._decoder = ObjectDecoder(resource)
        self._definition = f"{resource.plural}.{resource.group}"
        self._path: str | None = None
        self._version: str | None = None
        self._is_in_doubt = False
        """Whether the server may have been reset to an older state since it sent that version."""
        self._listed_s = -math.inf
        self._setbacks = Setbacks(shared.timing.first_wait_s, shared.timing.longest_wait_s)
        self._is_behind = False
        """Whether the store was told that the kind is behind."""
        self._has_objects = False
        """Whether the store has the objects of the last list."""
        self._absence: _Absence | None = None
        """Set while the kind is not installed."""
        self._common = shared.log
        self._limited = _log.every(60.0)

    def run(self) -> None:
        self._await_referring()
        while not self._stop.is_set():
            try:
                self._turn()
            except Unreachable as error:
                self._restart(Restart.DISCONNECTED, error, is_general=True)
            except Refused as refusal:
                self._refused(refusal)

    def _turn(self) -> None:
        heard = self._bell.rings
        if self._path is None:
            self._path = self._found()
        if self._path is None:
            self._await_kind(heard)
        elif self._version is None:
            self._listed_s = time.monotonic()
            self._version = self._list(self._path)  # lists are expensive, so only a watch that works resets the waits
            self._is_in_doubt = False
        elif self._is_in_doubt:
            self._compare(self._path, self._version)
        else:
            self._watch(self._path, self._version)

    def _found(self) -> str | None:
        path = find(self._server, self._resource)
        if path is None or not self._namespace:
            return path
        return path.removesuffix(self._resource.plural) + f"namespaces/{self._namespace}/{self._resource.plural}"

    def _await_referring(self) -> None:
        """Wait until all objects that may name Secrets and ConfigMaps are known, since these tell which of those
        matter; and with a namespace, until all Namespaces are known, since these tell what a missing permission there
        means.
        """
        awaited = REFERRING | ({Kind.NAMESPACE} if self._namespace else set())
        while self._kind in WITH_DATA and not self._stop.is_set():
            if self._store.wait_listed(awaited, 1.0):
                return

    def _await_kind(self, heard: int) -> None:
        """Wait until it is time to search again, which is sooner if the bell has rung more than `heard` times."""
        absence = self._absence
        if absence is None:
            absence = self._absence = _Absence(time.monotonic())
            self._setbacks.wait_briefly()
            if not self._has_objects:
                self._set_absent(absence)  # before another request
        instead = other_versions(self._server, self._resource)
        kept_s = self._kept_s(absence, instead)
        is_news = absence.learn(instead)
        # A kind is served only a moment after its definition was created, so after a ring we search several times.
        wait_s = min(self._timing.poll_s, self._setbacks.next_limit_s() * _STRETCH)
        is_rare = wait_s >= (_NOT_SOON_S if absence.instead else self._timing.poll_s)
        if is_rare and self._bell.rings == heard:  # a ring may be for a definition that has come during this search
            absence.may_come = False
        elif is_news or not absence.instead:
            absence.may_come = True
        if kept_s > 0:
            wait_s = min(wait_s, kept_s)
        else:
            self._set_absent(absence)
        if is_news:
            self._say_absent(absence)
        if self._bell.wait(heard, wait_s):
            self._setbacks.wait_briefly()

    def _kept_s(self, absence: _Absence, instead: tuple[str, ...] | None) -> float:
        """How much longer the store keeps the objects of the last list; 0: it has none, or they were deleted together
        with their definition."""
        if not self._has_objects or instead == ():
            return 0.0
        return max(0.0, absence.since_s + self._timing.unserved_s - time.monotonic())

    def _set_absent(self, absence: _Absence) -> None:
        self._has_objects = self._is_behind = False
        self._store.set_absent(self._kind, may_come=absence.may_come)

    def _say_absent(self, absence: _Absence) -> None:
        fields = {"kind": str(self._kind), "group": self._resource.group}
        if absence.instead:  # its objects exist, but have no effect
            message = "kind is served in other versions only, its objects are not read"
            _log.warning(message, **fields, versions=list(absence.instead), wanted=list(self._resource.versions))
            return
        # If it was installed before, it may have been removed by mistake, and its objects no longer have an effect.
        say = _log.warning if self._setbacks.cause is Restart.REMOVED else _log.info
        say("kind is not installed, waiting for its CRD", **fields)

    def _list(self, path: str) -> str:
        """Give the store all objects at once, after reading them page by page. Returns the version of the list."""
        page_size = self._timing.page_size_with_data if self._kind in WITH_DATA else self._timing.page_size
        items: dict[Key, Object] = {}
        rejected: dict[Key, Unreadable] = {}
        continue_ = ""
        pages_without_news = 0
        while True:
            query = {"limit": str(page_size), **({"continue": continue_} if continue_ else {}), **self._selector()}
            body = self._server.request("GET", path, query, accept=self._accept("List"), answer_s=self._timing.page_s)
            page = self._decoder.page(body)
            known = len(items) + len(rejected)
            for item in page.items:
                if isinstance(item, Rejected):
                    rejected[item.key] = item.problem
                    self._say_rejected(item)
                else:
                    items[item.key] = self._store.trim(self._kind, item)
            pages_without_news = 0 if len(items) + len(rejected) > known else pages_without_news + 1
            if page.continue_ and (page.continue_ == continue_ or pages_without_news > _MOST_PAGES_WITHOUT_NEWS):
                raise Unreachable("the server answers with the same page of a list again and again")
            continue_ = page.continue_
            if not continue_:
                break
        self._store.replace(self._kind, items.values(), rejected, self._namespace)
        self._has_objects = True
        self._notice(items.values())
        if self._absence is not None:
            self._absence = None
            _log.info("kind is installed now", kind=str(self._kind), path=path)
        return page.version

    def _compare(self, path: str, version: str) -> None:
        """Have the kind listed again if the server's version is older than ours. A watch from a future version is not
        an error: the server sends nothing until it gets there, which took days after a backup was restored.
        """
        query = {"limit": "1", **self._selector()}
        newest = self._decoder.version(self._server.request("GET", path, query, accept=_PARTIAL.format("List")))
        if newest.isdecimal() and version.isdecimal() and int(newest) < int(version):
            self._version = None
            fields = {"kind": str(self._kind), "version": newest, "known_version": version}
            self._common.warning("the server has an older state than before, listing again", **fields)
        self._is_in_doubt = False

    def _watch(self, path: str, version: str) -> None:
        began_s = time.monotonic()
        timing = self._timing
        timeout_s = timing.watch_s * random.uniform(1.0, 1.1)  # spreads the load of many watches
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(timeout_s))),
            **self._selector(),
        }
        stream = self._server.stream(
            path, query, accept=self._accept(""), timeout_s=timing.silence_s, answer_s=timing.longest_s
        )
        good_from_s = began_s + min(1.0, timing.watch_s / 2)
        try:
            with stream as lines, self._catching_up():
                for line in lines:
                    self._apply(self._decoder.event(line))
                    if self._version != version:
                        self._setbacks.clear()
                    if self._is_outdated():
                        break
        except Unreachable as error:
            # Load balancers end silent connections, repeatedly if nothing happens to a kind.
            if error.has_answered and time.monotonic() >= good_from_s:
                self._setbacks.clear()
            raise
        if self._version == version and time.monotonic() < good_from_s:
            raise Unreachable("the server ended the watch at once")
        self._setbacks.clear()
        self._is_in_doubt = time.monotonic() - began_s < timing.watch_s - 1.0
        if self._is_outdated(_SETTLED_S):
            self._version = None

    @contextmanager
    def _catching_up(self) -> Iterator[None]:
        """After the start of a watch, missed events arrive at once, but one after another. Give them a moment before
        the kind counts as caught up."""
        if not self._is_behind:
            yield
            return
        timer = threading.Timer(_CATCHING_UP_S, self._caught_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _caught_up(self) -> None:
        self._is_behind = False
        self._store.set_behind(self._kind, self._namespace, is_behind=False)

    def _is_outdated(self, settled_s: float = 0.0) -> bool:
        """Whether the last list was made before the definition changed, or less than `settled_s` after that."""
        return self._listed_s < self._bell.changed_s(self._definition) + settled_s

    def _apply(self, event: Event) -> None:
        item = event.item
        if isinstance(item, Rejected):
            if event.type == "DELETED":
                self._store.delete(self._kind, item.key)
            else:
                self._say_rejected(item)
                self._store.reject(self._kind, item.key, item.problem)
        elif item is not None:
            if event.type == "DELETED":
                self._store.delete(self._kind, item.key)
            else:
                self._store.upsert(self._kind, item)
        if item is not None:
            self._notice([item] if isinstance(item, Object) and event.type != "DELETED" else ())
        self._version = event.version

    def _refused(self, refusal: Refused) -> None:
        match refusal.status_code:
            case HTTPStatus.GONE:
                self._version = None
                self._restart(Restart.EXPIRED, refusal)
            case HTTPStatus.NOT_FOUND if self._resource.is_optional:
                self._path = self._version = None
                self._restart(Restart.REMOVED, refusal)
            case HTTPStatus.FORBIDDEN if self._namespace and not self._store.can_have_roles(self._namespace):
                self._await_namespace()
            case HTTPStatus.FORBIDDEN:
                now_s, poll_s = time.monotonic(), self._timing.poll_s
                if self._setbacks.is_forbidden_for(poll_s, now_s) and now_s - self._listed_s >= poll_s:
                    self._version = None  # only the right to watch may be missing
                if self._namespace and self._setbacks.is_forbidden_for(self._timing.closed_s, now_s):
                    self._store.set_forbidden(self._namespace)  # its administrators must not be able to hold up others
                self._restart(Restart.FORBIDDEN, refusal)
            case status_code if status_code in _PASSING:
                self._restart(Restart.REFUSED, refusal, is_general=True)
            case _:
                self._version = None  # for example if it is newer than the server's own, after a restored backup
                self._restart(Restart.REFUSED, refusal)

    def _await_namespace(self) -> None:
        """The namespace does not exist or is being deleted, together with our Role there. Everything else goes on
        without it, even after a restart."""
        self._version = None
        self._store.replace(self._kind, (), namespace=self._namespace)
        self._caught_up()
        message = "namespace does not exist, or is being deleted, waiting for it and for the right to read there"
        self._limited.warning(message, kind=str(self._kind), namespace=self._namespace)
        self._stop.wait(self._setbacks.next_wait_s())

    def _restart(self, cause: Restart, error: ApiServerError, *, is_general: bool = False) -> None:
        """`is_general`: watches of other kinds have the same problem at this time."""
        if self._stop.is_set():
            return
        self._on_restart((self._kind, self._namespace), cause, error)
        self._is_behind = True
        self._store.set_behind(self._kind, self._namespace, is_behind=True)
        self._is_in_doubt = True
        now_s = time.monotonic()
        self._setbacks.add(cause, now_s)
        asked_s = error.retry_after_s if isinstance(error, Refused) else 0.0
        delay_s = asked_s + self._setbacks.next_wait_s()
        log = self._common if is_general else self._limited
        fields = {"kind": str(self._kind), "path": self._path, "delay_s": round(delay_s, 3)}
        if self._setbacks.is_forbidden_for(self._timing.forbidden_s, now_s):
            log.error("watch forbidden, retrying", error, **fields)
        elif cause is Restart.REFUSED:
            log.warning("watch refused, retrying", error, **fields)
        elif cause is Restart.DISCONNECTED:
            log.info("watch disconnected, retrying", error, **fields)
        if not isinstance(error, Unreachable) or error.has_answered:
            self._stop.wait(delay_s)
            return
        soon_s = min(delay_s, _SOON_S)
        if not self._stop.wait(soon_s):
            self._server.reach.wait(error.returns, delay_s - soon_s)

    def _say_rejected(self, rejected: Rejected) -> None:
        fields = {"kind": str(self._kind), "name": str(rejected.key)}
        self._limited.warning("object left out", rejected.problem.reason, **fields)

    def _notice(self, items: Iterable[Object]) -> None:
        if self._kind is Kind.CUSTOM_RESOURCE_DEFINITION:
            for item in items:
                self._bell.note(item.key.name, item.metadata.generation)
            self._bell.ring()

    def _accept(self, suffix: str) -> str:
        return _PARTIAL.format(suffix) if self._kind in _METADATA_ONLY else "application/json"

    def _selector(self) -> dict[str, str]:
        return {"fieldSelector": _SELECTED_SECRETS} if self._kind is Kind.SECRET else {}
