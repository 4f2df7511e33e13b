"""Decides what to do with a request, from the table, the door it came in at, and its head.

Pure: random numbers come from `draw`, the time from `now_s`. It never raises, whatever the head contains. The steps in
order: normalise the path, find the listener by host, find the best match, then apply its rule: CORS preflight,
redirect, fixed answer, session or weighted choice of a backend, external authorization, rewrite, mirrors.
"""

import re
from collections.abc import Callable

from proxy.routing.asked import TooMuchToFit
from proxy.routing.cors import is_preflight
from proxy.routing.decision import GRPC_UNIMPLEMENTED, Answer, Decision, Forward, Inquiry, Redirect, grpc_status_of
from proxy.routing.edits import HeaderEdits, joined
from proxy.routing.head import Head, client_scheme
from proxy.routing.listener import Listener
from proxy.routing.match import Match
from proxy.routing.paths import UnusablePath, host_of, is_normal, normalise, with_full_path, with_prefix
from proxy.routing.rule import NO_ADDRESS, Branch, FixedAnswer, PathChange, RedirectPlan
from proxy.routing.sender import STRANGER, SeenHead, Sender
from proxy.routing.session import Session
from proxy.routing.table import Table

_TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)
BAD_PATH = Answer(400, "bad_path", b"the path cannot be normalised\n", _TEXT, grpc_status_of(400))
NO_RESOURCE = Answer(
    404, "no_resource", b"OPTIONS * is not supported: routes match only paths\n", _TEXT, GRPC_UNIMPLEMENTED
)
NO_LISTENER = Answer(404, "no_listener", b"no listener serves this host\n", _TEXT, GRPC_UNIMPLEMENTED)
TOO_MUCH = Answer(
    431,
    "too_much_to_match",
    b"the routes' regular expressions would have to read too much of this request\n",
    _TEXT,
    grpc_status_of(431),
)
NO_ROUTE = Answer(404, "no_route", b"no route matches this request\n", _TEXT, GRPC_UNIMPLEMENTED)

_NO_WEIGHT = FixedAnswer(500, b"no backend has a weight\n", b"text/plain; charset=utf-8", "no_backend")

_DEFAULT_PORTS = {b"http": 80, b"https": 443}
# Hosts that may be put into a Location field.
_HOST = re.compile(rb"[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\]")


def decide(
    table: Table, door: str, head: Head, draw: Callable[[], float], now_s: float = 0.0, sender: Sender = STRANGER
) -> Decision:
    """Decide what to do with a request that came in at `door`, see `listener.socket_door`.

    `draw` returns numbers in [0.0, 1.0), such as `random.random`; it is called only where chance decides. `now_s`, in
    seconds since 1970, tells which sessions have expired. What becomes of fields that describe clients depends on
    `sender`.
    """
    entrance = table.doors.get(door)
    if entrance is None:
        return NO_LISTENER
    target = head.path
    path, mark, query = target.partition(b"?")
    if not is_normal(path):
        try:
            path = normalise(path, merge_slashes=table.settings.merge_slashes)
        except UnusablePath:
            # OPTIONS * asks about the server as a whole (RFC 9110, 9.3.7); a proxy for many servers has no answer.
            return NO_RESOURCE if target == b"*" else BAD_PATH
        target = path + mark + query
    authority = head.authority
    listener = entrance.only
    if listener is not None and authority in listener.routes.exact:
        host = authority
    else:
        host = host_of(authority)
        listener = listener or entrance.listener_for(host)
        if listener is None:
            return NO_LISTENER
    try:
        match = listener.routes.find(
            host,
            path,
            query,
            head if table.client_fields is None else SeenHead(head, listener, sender, table.client_fields),
        )
    except TooMuchToFit:
        return TOO_MUCH
    if match is None:
        return NO_ROUTE
    rule = match.rule
    plain = rule.plain
    if plain is not None:
        return Forward(
            listener,
            rule,
            plain.backend,  # type: ignore[arg-type]  # a plain branch has one
            target,
            authority,
            plain.request_edits,
            plain.response_edits,
            (),
            None,
            None,
        )
    return _Request(listener, match, head, path, mark + query, host, sender).act(draw, now_s)


class _Request:
    """A request whose rule does more than forward it."""

    __slots__ = ("_cors_edits", "_head", "_host", "_listener", "_match", "_path", "_rule", "_sender", "_suffix")

    def __init__(
        self, listener: Listener, match: Match, head: Head, path: bytes, suffix: bytes, host: bytes, sender: Sender
    ) -> None:
        self._listener = listener
        self._match = match
        self._rule = match.rule
        self._head = head
        self._path = path
        self._suffix = suffix
        """The query with its question mark; empty: none."""
        self._host = host
        self._sender = sender
        self._cors_edits: HeaderEdits | None = None

    def act(self, draw: Callable[[], float], now_s: float) -> Decision:
        rule, head = self._rule, self._head
        if rule.cors is not None:
            if is_preflight(head):
                return self._preflight()
            self._cors_edits = rule.cors.response_edits(head)
        if rule.redirect is not None:
            return self._redirect(rule.redirect)
        if rule.answer is not None:
            return self._answer(rule.answer, rule.response_edits)
        session = None if rule.persistence is None else rule.persistence.find(head, now_s)
        branch = None if session is None else rule.branch_of(session)
        if branch is None:
            session = None
            branch = rule.choose(draw)
        if branch is None:
            return self._answer(_NO_WEIGHT, rule.response_edits)
        if branch.answer is not None:
            return self._answer(branch.answer, branch.response_edits)
        if rule.authorization is not None and not rule.authorization.backend.spec.addresses:
            return self._answer(NO_ADDRESS, branch.response_edits)
        return self._forward(branch, session, draw)

    def _preflight(self) -> Answer:
        status_code, fields = self._rule.cors.preflight_answer(self._head)  # type: ignore[union-attr]  # there is a policy
        return Answer(status_code, "preflight", headers=fields, listener=self._listener, rule=self._rule)

    def _redirect(self, plan: RedirectPlan) -> Decision:
        own = self._listener.scheme
        scheme = plan.scheme or client_scheme(self._head, own, is_trusted=self._sender.is_trusted)
        host = plan.hostname or self._host
        if not _HOST.fullmatch(host):
            return NO_LISTENER
        port = self._listener.public_port
        if plan.scheme or port == _DEFAULT_PORTS[own]:
            port = _DEFAULT_PORTS[scheme]
        port = plan.port or port
        shown_port = b"" if port == _DEFAULT_PORTS[scheme] else b":%d" % port
        location = b"".join((scheme, b"://", host, shown_port, self._changed(plan.path), self._suffix))
        edits = joined(self._rule.response_edits, self._cors_edits)
        return Redirect(self._listener, self._rule, plan.status_code, location, edits)

    def _answer(self, answer: FixedAnswer, edits: HeaderEdits | None) -> Answer:
        return Answer(
            answer.status_code,
            answer.reason,
            answer.body,
            ((b"content-type", answer.content_type),) if answer.body else (),
            grpc_status_of(answer.status_code),
            self._listener,
            self._rule,
            joined(edits, self._cors_edits),
        )

    def _forward(self, branch: Branch, session: Session | None, draw: Callable[[], float]) -> Forward:
        path = self._path if branch.path is None else self._changed(branch.path)
        target = path + self._suffix
        authority, auth = self._head.authority, self._rule.authorization
        return Forward(
            self._listener,
            self._rule,
            branch.backend,  # type: ignore[arg-type]  # a branch without an answer has one
            target,
            branch.hostname or authority,
            branch.request_edits,
            joined(branch.response_edits, self._cors_edits),
            tuple(mirror.backend for mirror in branch.mirrors if mirror.share >= 1.0 or draw() < mirror.share),
            session,
            None if auth is None else Inquiry(auth, auth.prefix + self._path + self._suffix),
        )

    def _changed(self, change: PathChange | None) -> bytes:
        if change is None:
            return self._path
        if change.is_prefix:
            return with_prefix(self._path, self._match.path, change.replacement)
        return with_full_path(change.replacement)
