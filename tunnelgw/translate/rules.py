"""Translates the rules of an HTTPRoute or GRPCRoute into rules of the document, and conditions that report problems.

A rule that cannot be served as written answers 500 to all requests that it matches. If it were left out, another rule
might serve them, for example without the filter that was meant to keep them out. Matches that the proxy cannot express
are left out. A backendRef that leads nowhere keeps its share of the requests, which are answered 500.
"""

import itertools
from typing import NamedTuple

import msgspec

from proxy import document
from tunnelgw.model.conditions import Finding
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.routes import BackendObjectRef, BackendRef, GrpcRoute, HttpRoute, HttpRule, Rule
from tunnelgw.translate.backendrefs import Referrer
from tunnelgw.translate.backends import BackendId
from tunnelgw.translate.filters import FilterReader, Translated
from tunnelgw.translate.matches import matches_of
from tunnelgw.translate.parts import (
    Patterns,
    RouteKind,
    carry,
    excerpt,
    patterns_of_route,
    problems_of_rule,
    sound_matches,
)
from tunnelgw.translate.queries import View
from tunnelgw.translate.remarks import Remarks, findings_of
from tunnelgw.translate.sessions import persistence_of

_REFUSED = document.FixedResponse(500, "the rule for this request cannot be served as it is written\n")
_NOWHERE = document.FixedResponse(500, "the route's backend for this request cannot be used\n")
_NO_TIMEOUTS = document.Rule().timeouts
"""The default object itself, which the encoder leaves out."""


class RouteId(NamedTuple):
    """A route on a Gateway. The Gateway matters because of the certificate that it presents to backends."""

    kind: Kind
    """HTTPRoute or GRPCRoute."""
    key: Key
    gateway: Key


class RouteContent(msgspec.Struct, frozen=True, gc=False):
    """A route's part of the document."""

    rules: tuple[document.Rule, ...] = ()
    """Served wherever the route is attached, even if `findings` refuse it; then all of them answer 500. Empty: no
    request can match."""
    backends: tuple[BackendId, ...] = ()
    """Backends that the rules refer to, each once."""
    findings: tuple[Finding, ...] = ()
    """ResolvedRefs always; Accepted where no rule can be served; PartiallyInvalid where some cannot."""


def route_content(view: View, id_: RouteId) -> RouteContent:
    """A query."""
    route = view.get(id_.kind, id_.key)
    if not isinstance(route, HttpRoute | GrpcRoute):
        return RouteContent()
    reader = _RouteReader(view, id_)
    for rule in route.spec.rules or (HttpRule(),):  # an empty rule means the same in both kinds
        reader.read(rule)
    return RouteContent(tuple(reader.rules), tuple(reader.backends), findings_of(reader.remarks))


class _RouteReader:
    """Reads the rules of one route in their order."""

    def __init__(self, view: View, id_: RouteId) -> None:
        self._referrer = Referrer(view, id_.kind, id_.key.namespace, id_.gateway)
        self._id = id_
        self._patterns = patterns_of_route()
        self._names: set[str] = set()
        self.rules: list[document.Rule] = []
        self.backends: dict[BackendId, None] = {}
        """In the order of first use."""
        self.remarks: list[Remarks] = []

    def read(self, rule: Rule) -> None:
        remarks = Remarks(f"rules[{len(self.remarks)}]")
        self.remarks.append(remarks)
        reader = _RuleReader(rule, self._id, self._referrer, remarks, self._patterns)
        made = reader.read()
        if rule.name in self._names:
            remarks.unsupported.append(f"name: {excerpt(rule.name)} is also the name of an earlier rule")
        if remarks.is_refused or reader.is_closed:
            refused = reader.answering_500("" if rule.name in self._names else rule.name)
            self.rules += [refused] if refused else []
        else:
            self.rules.append(made)
            self.backends |= dict.fromkeys(reader.backends)
        self._names |= {rule.name} - {""}


class _References:
    """Follows a rule's references to backends, and collects the backends that it has found."""

    def __init__(self, referrer: Referrer, remarks: Remarks) -> None:
        self._referrer = referrer
        self._remarks = remarks
        self.found: list[BackendId] = []

    def name_of(self, ref: BackendObjectRef, at: str) -> str | None:
        """The document's name of the backend; None, with a remark, if the reference leads nowhere."""
        found = self._referrer.follow(ref)
        if isinstance(found, Finding):
            self._remarks.refer(at, found)
            return None
        self.found.append(found)
        return found.name


class _RuleReader:
    """Reads one rule."""

    def __init__(self, rule: Rule, route: RouteId, referrer: Referrer, remarks: Remarks, patterns: Patterns) -> None:
        self._rule = rule
        self._route = route
        self._referrer = referrer
        self._remarks = remarks
        self._patterns = patterns
        self._matches = matches_of(rule, remarks)
        self.backends: list[BackendId] = []
        self._followed: list[_References] = []
        """All references, including those in the filters of a backendRef that leads nowhere, which add nothing to
        `backends`."""
        self.is_closed = False
        """Whether a filter cannot be applied, so that no request may pass."""

    def read(self) -> document.Rule:
        """The rule. Only valid if `remarks` do not refuse it and `is_closed` is not set."""
        rule, remarks = self._rule, self._remarks
        references = self._references()
        filters = self._filters(references).of_rule(rule.filters)
        self.backends += references.found
        self.is_closed = filters.is_closed
        self._check_combination(filters)
        backends = tuple(self._backend_ref(ref, f"backendRefs[{place}]") for place, ref in enumerate(rule.backend_refs))
        timeouts: document.Timeouts | None = None
        retry: document.Retry | None = None
        if isinstance(rule, HttpRule):
            timeouts = carry(rule.timeouts, document.Timeouts, "timeouts", remarks) if rule.timeouts else None
            retry = carry(rule.retry, document.Retry, "retry", remarks) if rule.retry else None
        made = document.Rule(
            name=rule.name,
            matches=self._matches,
            filters=filters.filters,
            backends=backends,
            timeouts=timeouts or _NO_TIMEOUTS,
            retry=retry or document.UNSET,
            session_persistence=persistence_of(rule.session_persistence, self._identity, remarks),
        )
        if not remarks.unsupported:  # if some parts could not be carried over, others may seem wrong without them
            names = {backend.name for references in self._followed for backend in references.found}
            found = (problems_of_rule(part, self._kind, self._patterns, names) for part in self._compatible(made))
            remarks.unsupported += dict.fromkeys(itertools.chain(*found))
        return msgspec.structs.replace(made, backends=tuple(map(_without_idle_filters, backends)))

    def answering_500(self, name: str) -> document.Rule | None:
        """A rule that answers 500 to the same requests; None: none of the matches can be expressed."""
        sound = sound_matches(self._matches, self._kind, self._patterns)
        if self._rule.matches and not sound:
            return None
        made = msgspec.structs.replace(_claim(sound), name=name)
        return None if problems_of_rule(made, self._kind, self._patterns) else made

    def _check_combination(self, filters: Translated) -> None:
        if not filters.filters.request_redirect:
            return
        if filters.filters.url_rewrite:
            self._remarks.incompatible.append("filters: RequestRedirect and URLRewrite, want one of the two")
        if self._rule.backend_refs:
            self._remarks.incompatible.append("filters: RequestRedirect answers all requests, so want no backendRefs")

    def _compatible(self, rule: document.Rule) -> tuple[document.Rule, ...]:
        """The rule; if parts of it exclude each other, which was remarked upon already: once without what a redirect
        excludes, and once without the redirect."""
        if not self._remarks.incompatible:
            return (rule,)
        without = msgspec.structs.replace
        redirect = without(rule, backends=(), filters=without(rule.filters, url_rewrite=document.UNSET))
        return redirect, without(rule, filters=without(rule.filters, request_redirect=document.UNSET))

    def _backend_ref(self, ref: BackendRef, at: str) -> document.BackendRef:
        references = self._references()
        filters = self._filters(references).of_backend(ref.filters, at)
        name = references.name_of(ref, at)
        if name is None or filters.is_closed:
            # Its filters are checked anyway: whether the rule is served must not depend on which objects exist.
            return document.BackendRef(weight=ref.weight, respond=_NOWHERE, filters=filters.of_backend)
        self.backends += references.found
        return document.BackendRef(backend=name, weight=ref.weight, filters=filters.of_backend)

    def _references(self) -> _References:
        references = _References(self._referrer, self._remarks)
        self._followed.append(references)
        return references

    def _filters(self, references: _References) -> FilterReader:
        return FilterReader(self._route.kind, references.name_of, self._remarks)

    @property
    def _kind(self) -> RouteKind:
        return "grpc" if self._route.kind is Kind.GRPC_ROUTE else "http"

    @property
    def _identity(self) -> str:
        return f"{self._route.kind} {self._route.key} {self._rule.name or self._remarks.at}"


def _without_idle_filters(ref: document.BackendRef) -> document.BackendRef:
    """Filters of a backendRef that leads nowhere have no effect."""
    return document.BackendRef(weight=ref.weight, respond=ref.respond) if ref.respond else ref


def _claim(matches: tuple[document.Match, ...]) -> document.Rule:
    return document.Rule(matches=matches, respond=_REFUSED)
