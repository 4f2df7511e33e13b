"""Rules of the compiled table: everything that can be worked out before a request comes is worked out here."""

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
    """A backend of the table; references that say the same share one, hence its connections and its health."""

    key: str
    """Name in the document, or for one that a rule describes itself, what it says in one line."""
    spec: document.Backend
    """Addresses, protocol, TLS, limits and health checks; `name` is the key."""

    @property
    def scheme(self) -> bytes:
        """Of requests to it."""
        return b"https" if self.spec.protocol == "https" else b"http"


class PathChange(msgspec.Struct, frozen=True, gc=False):
    """A path modifier: the whole path or the matched prefix is replaced."""

    is_prefix: bool
    replacement: bytes


class RedirectPlan(msgspec.Struct, frozen=True, gc=False):
    """A compiled redirect; empty and zero stand for "as the client sent it"."""

    scheme: bytes
    hostname: bytes
    port: int
    path: PathChange | None
    status_code: int


class FixedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer that the document gives."""

    status_code: int
    body: bytes
    content_type: bytes
    reason: str


class MirrorPlan(msgspec.Struct, frozen=True, gc=False):
    """Where copies go, and the share of requests that are copied, 0.0 to 1.0."""

    backend: Backend
    share: float


class AuthPlan(msgspec.Struct, frozen=True, gc=False):
    """Who is asked whether requests are allowed, and what passes between them and it. Names in lower case."""

    backend: Backend
    prefix: bytes
    """Before the path, without a slash at its end."""
    request_names: frozenset[bytes]
    response_names: frozenset[bytes] | None
    """None: all that are not about the message itself."""


class Branch(msgspec.Struct, frozen=True, gc=False):
    """One backend reference of a rule, its filters joined with those of the rule. It forwards, or it answers."""

    weight: int
    backend: Backend | None
    answer: FixedAnswer | None
    hostname: bytes
    """Host to send instead of the request's; empty: unchanged."""
    path: PathChange | None
    request_edits: HeaderEdits | None
    response_edits: HeaderEdits | None
    mirrors: tuple[MirrorPlan, ...]


class RetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """The compiled `retry`."""

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
    """As the document has it, often empty."""
    index: int
    """Place in the route."""
    cors: CorsPolicy | None
    redirect: RedirectPlan | None
    answer: FixedAnswer | None
    """The answer of a rule that forwards nothing."""
    response_edits: HeaderEdits | None
    """The rule's own, for answers that no backend gives."""
    branches: tuple[Branch, ...]
    cumulative: tuple[int, ...]
    """Running sums of the weights of `branches`; the last is the sum of all."""
    request_timeout_s: float | None
    """None: the document's default; 0.0: no limit."""
    backend_timeout_s: float | None
    retry: RetryPolicy | None
    persistence: Persistence | None
    authorization: AuthPlan | None
    plain: Branch | None
    """The only branch, when nothing but its header edits stands between request and backend."""

    def choose(self, draw: Callable[[], float]) -> Branch | None:
        """One branch by weight; None when no branch has any."""
        branches = self.branches
        total = self.cumulative[-1] if branches else 0
        if not total:
            return None
        if len(branches) == 1:
            return branches[0]
        return branches[bisect_right(self.cumulative, min(int(draw() * total), total - 1))]

    def branch_of(self, session: Session) -> Branch | None:
        """The branch whose backend the session names, whatever its weight; else one that has the session's address.

        A backend without any address ends its sessions, as the last of its servers does when it leaves. One that a rule
        describes itself is called by all its addresses: another one gives it another name.
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
    """Compiles rules; keeps one `Backend` for each backend that they speak of, as long as they do."""

    def __init__(self, backends: Mapping[str, Backend] | None = None, uses: Mapping[str, int] | None = None) -> None:
        """Begins with what an earlier table has."""
        self.backends: dict[str, Backend] = dict(backends or {})
        self.uses: dict[str, int] = dict(uses or {})
        """References to each of those that rules describe themselves; without one it is gone."""

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
        is_plain = len(branches) == 1 and not (cors or redirect or answer or persistence or auth)
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
        """Rules that were compiled here or for the earlier table, and are not part of the next."""
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
