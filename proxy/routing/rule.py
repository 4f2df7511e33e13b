"""Compiled rules: everything that can be worked out before a request comes."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

import msgspec

from proxy import document
from proxy.routing.cors import CorsPolicy
from proxy.routing.edits import HeaderEdits, compile_edits, joined
from proxy.routing.paths import encoded
from proxy.routing.session import Persistence, Session, compile_persistence, fingerprint


class Backend(msgspec.Struct, frozen=True, gc=False):
    """A backend. Equal references share one object, and with it the backend's connections and health."""

    key: str
    """Its name in the document's `backends`; for one described inside a rule, protocol, addresses and a hash of its TLS
    settings, such as `http://10.0.0.1:80`."""
    spec: document.Backend
    """Addresses, protocol, TLS, limits and health checks; `name` is the key."""

    @property
    def scheme(self) -> bytes:
        """The scheme of requests to it."""
        return b"https" if self.spec.protocol == "https" else b"http"


class PathChange(msgspec.Struct, frozen=True, gc=False):
    """A compiled path modifier: replaces the whole path, or the matched prefix."""

    is_prefix: bool
    replacement: bytes


class RedirectPlan(msgspec.Struct, frozen=True, gc=False):
    """A compiled redirect. Empty values and port 0 stand for fields that the document leaves out."""

    scheme: bytes
    hostname: bytes
    port: int
    path: PathChange | None
    status_code: int


class FixedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer that the proxy gives without a backend."""

    status_code: int
    body: bytes
    content_type: bytes
    reason: str


class MirrorPlan(msgspec.Struct, frozen=True, gc=False):
    """Where copies of requests go, and the share of requests that are copied, 0.0 to 1.0."""

    backend: Backend
    share: float


class AuthPlan(msgspec.Struct, frozen=True, gc=False):
    """The server that authorizes requests, and the header fields passed to and from it. Names are in lower case."""

    backend: Backend
    prefix: bytes
    """Prefix for the path, without a trailing slash."""
    request_names: frozenset[bytes]
    response_names: frozenset[bytes] | None
    """Fields of its response to pass to the backend; None: all that do not describe the message itself."""


class Branch(msgspec.Struct, frozen=True, gc=False):
    """A backend reference of a rule, its filters joined with the rule's. Requests are forwarded to `backend`, or get
    `answer`."""

    weight: int
    backend: Backend | None
    answer: FixedAnswer | None
    hostname: bytes
    """Replaces the request's host; empty: unchanged."""
    path: PathChange | None
    request_edits: HeaderEdits | None
    response_edits: HeaderEdits | None
    mirrors: tuple[MirrorPlan, ...]


class RetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """The compiled `retry` of a rule, see `document.Retry`."""

    attempts: int
    """Retries after the first attempt."""
    codes: frozenset[int]
    backoff_s: float
    connection_errors: bool
    max_body_bytes: int


class Rule(msgspec.Struct, frozen=True, gc=False):
    """A compiled rule."""

    route_name: str
    route_kind: str
    name: str
    """As in the document, often empty."""
    index: int
    """Index in the route's `rules`."""
    cors: CorsPolicy | None
    redirect: RedirectPlan | None
    answer: FixedAnswer | None
    """Set if the rule forwards nothing and does not redirect."""
    response_edits: HeaderEdits | None
    """The rule's own, for answers that do not come from a backend reference."""
    branches: tuple[Branch, ...]
    cumulative: tuple[int, ...]
    """Running sums of the weights of `branches`; the last one is the total."""
    request_timeout_s: float | None
    """None: the document's default; 0.0: no limit."""
    backend_timeout_s: float | None
    retry: RetryPolicy | None
    persistence: Persistence | None
    authorization: AuthPlan | None
    plain: Branch | None
    """The only branch, if the rule does nothing to requests except header edits: `decide` then takes a shortcut."""

    def choose(self, draw: Callable[[], float]) -> Branch | None:
        """Choose a branch at random, by weight; None if all weights are 0. `draw` returns numbers in [0.0, 1.0)."""
        branches = self.branches
        total = self.cumulative[-1] if branches else 0
        if not total:
            return None
        if len(branches) == 1:
            return branches[0]
        return branches[bisect_right(self.cumulative, min(int(draw() * total), total - 1))]

    def branch_of(self, session: Session) -> Branch | None:
        """The branch of the session's backend, whatever its weight; else one whose backend has the session's address.

        The second case is for backends described inside a rule, whose key consists of all their addresses and changes
        with them. A backend without addresses is skipped, so its sessions end.
        """
        known = [(each, each.backend) for each in self.branches if each.backend is not None and each.answer is None]
        for branch, backend in known:
            if fingerprint(backend.key) == session.backend:
                return branch
        for branch, backend in known:
            if session.address in map(fingerprint, backend.spec.addresses):
                return branch
        return None


_NO_BACKEND = FixedAnswer(500, b"no backend can serve this request\n", b"text/plain; charset=utf-8", "no_backend")
NO_ADDRESS = FixedAnswer(503, b"the backend has no address\n", b"text/plain; charset=utf-8", "no_address")


class RuleCompiler:
    """Compiles rules, and keeps one `Backend` for each distinct backend that they refer to, for as long as they do."""

    def __init__(self, backends: Mapping[str, Backend] | None = None, uses: Mapping[str, int] | None = None) -> None:
        """Both arguments come from an earlier table, and are copied."""
        self.backends: dict[str, Backend] = dict(backends or {})
        self.uses: dict[str, int] = dict(uses or {})
        """Number of references to each backend that is described inside rules; at 0 the backend is removed."""

    def compile(self, rule: document.Rule, index: int, route_name: str, route: document.Route) -> Rule:
        filters = rule.filters
        branches = tuple(self._branch(reference, filters) for reference in rule.backends)
        answer = _answer(rule.respond) if rule.respond else None
        if answer is None and not branches and not filters.request_redirect:
            answer = _NO_BACKEND
        cors = CorsPolicy(filters.cors) if filters.cors else None
        redirect = _redirect(filters.request_redirect) if filters.request_redirect else None
        persistence = compile_persistence(rule, route)
        auth = self._auth(filters.external_auth) if filters.external_auth else None
        is_plain = len(branches) == 1 and not (cors or persistence or auth)
        return Rule(
            route_name,
            route.kind,
            rule.name,
            index,
            cors,
            redirect,
            answer,
            compile_edits(filters.response_header_modifier),
            branches,
            tuple(accumulate(branch.weight for branch in branches)),
            _limit_s(rule.timeouts.request),
            _limit_s(rule.timeouts.backend_request),
            _retry(rule.retry) if rule.retry else None,
            persistence,
            auth,
            branches[0] if is_plain and _is_plain(branches[0]) else None,
        )

    def forget(self, rules: Iterable[Rule]) -> None:
        """Release the backends of rules that were compiled here or for the earlier table and are not in the next."""
        for rule in rules:
            for branch in rule.branches:
                for backend in (branch.backend, *(mirror.backend for mirror in branch.mirrors)):
                    if backend is not None and backend.key in self.uses:
                        self._forget(backend.key)
            if rule.authorization is not None and rule.authorization.backend.key in self.uses:
                self._forget(rule.authorization.backend.key)

    def _forget(self, key: str) -> None:
        self.uses[key] -= 1
        if not self.uses[key]:
            del self.uses[key]
            del self.backends[key]

    def _branch(self, reference: document.BackendRef, filters: document.Filters) -> Branch:
        backend = None if reference.respond else self._backend(reference)
        answer = _answer(reference.respond) if reference.respond else None
        if backend is not None and not backend.spec.addresses:
            answer = NO_ADDRESS
        own = reference.filters
        general, special = filters.url_rewrite, own.url_rewrite
        hostname = (special and special.hostname) or (general and general.hostname) or ""
        path = (special and special.path) or (general and general.path)
        mirrors = (*filters.request_mirrors, *own.request_mirrors)
        return Branch(
            reference.weight,
            backend,
            answer,
            hostname.encode(),
            _path_change(path) if path else None,
            joined(compile_edits(filters.request_header_modifier), compile_edits(own.request_header_modifier)),
            joined(compile_edits(filters.response_header_modifier), compile_edits(own.response_header_modifier)),
            tuple(MirrorPlan(self._backend(mirror.backend), _share(mirror)) for mirror in mirrors),
        )

    def _auth(self, spec: document.ExternalAuth) -> AuthPlan:
        response_names = frozenset(name.lower().encode() for name in spec.allowed_response_headers)
        prefix = encoded(spec.path or "").strip(b"/")
        return AuthPlan(
            self._backend(spec.backend),
            b"/" + prefix if prefix else b"",
            frozenset((b"authorization", *(name.lower().encode() for name in spec.allowed_headers))),
            response_names or None,
        )

    def _backend(self, target: document.BackendTarget) -> Backend:
        if target.backend:
            return self.backends[target.backend]
        addresses = (target.address,) if target.address else target.addresses
        key = f"{target.protocol}://{','.join(addresses)}"
        if target.tls:
            key = f"{key}#{fingerprint(msgspec.json.encode(target.tls).decode()).hex()}"
        known = self.backends.get(key)
        if known is None:
            spec = document.Backend(name=key, addresses=addresses, protocol=target.protocol, tls=target.tls)
            known = self.backends[key] = Backend(key, spec)
        self.uses[key] = self.uses.get(key, 0) + 1
        return known


def _is_plain(branch: Branch) -> bool:
    return (
        branch.weight > 0
        and branch.backend is not None
        and branch.answer is None
        and not branch.hostname
        and branch.path is None
        and not branch.mirrors
    )


def _answer(spec: document.FixedResponse) -> FixedAnswer:
    return FixedAnswer(spec.status_code, spec.body.encode(), spec.content_type.strip(" \t").encode(), "fixed")


def _redirect(spec: document.RequestRedirect) -> RedirectPlan:
    return RedirectPlan(
        (spec.scheme or "").encode(),
        (spec.hostname or "").encode(),
        spec.port or 0,
        _path_change(spec.path) if spec.path else None,
        spec.status_code,
    )


def _path_change(spec: document.PathModifier) -> PathChange:
    is_prefix = spec.type == "ReplacePrefixMatch"
    return PathChange(is_prefix, encoded((spec.replace_prefix_match if is_prefix else spec.replace_full_path) or ""))


def _retry(spec: document.Retry) -> RetryPolicy:
    return RetryPolicy(
        spec.attempts,
        frozenset(spec.codes),
        document.seconds(spec.backoff),
        spec.connection_errors,
        spec.max_body_bytes,
    )


def _share(mirror: document.RequestMirror) -> float:
    if mirror.fraction:
        return mirror.fraction.numerator / mirror.fraction.denominator
    return mirror.percent / 100 if isinstance(mirror.percent, int) else 1.0


def _limit_s(duration: str | document.Unset) -> float | None:
    return document.seconds(duration) if duration else None
