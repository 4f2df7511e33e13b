"""A request ready to be forwarded: the head as the backend gets it, and what its attempts need to know. Pure."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from proxy.exchange import maxforwards
from proxy.exchange.answers import error_answer
from proxy.exchange.authorization import Question, question
from proxy.exchange.client import Arrival
from proxy.exchange.forwarding import Forwarding
from proxy.exchange.upgrade import NONCE_BYTES, Switch, is_ignored
from proxy.h1.grammar import is_authority
from proxy.heads import RequestHead, plain_name
from proxy.routing import Answer, Forward

RACE_REPLAY_BYTES: Final = 64 * 1024
"""How much of a body is kept without a retry policy, in case a kept connection closes just as it is used."""

_BAD_HOST: Final = error_answer(400, "bad_host", "the host is not a name or address with an optional port")
_NO_KEY: Final = error_answer(400, "bad_upgrade", "an upgrade to websocket needs one sec-websocket-key")
_MAX_AUTHORITY_BYTES: Final = 512


class Departure(msgspec.Struct, eq=False):
    """`switch` is set if the request asks for another protocol, `question` until the request is authorized. From then
    on `withheld` names the fields that only the authorization server may set, which trailers must not have."""

    decision: Forward
    head: RequestHead
    end_stream: bool
    switch: Switch | None
    question: Question | None = None
    withheld: frozenset[bytes] = frozenset()

    @property
    def withheld_from_trailers(self) -> frozenset[bytes]:
        """Also the fields that the rule removes or sets: some backends treat trailers like fields of the head."""
        edits = self.decision.request_edits
        return self.withheld if edits is None else self.withheld | frozenset(map(plain_name, edits.drop))

    @property
    def replay_bytes(self) -> int:
        """How much of the body may be kept for another attempt."""
        policy = self.decision.rule.retry
        return RACE_REPLAY_BYTES if policy is None else policy.max_body_bytes


def depart(
    forwarding: Forwarding,
    arrival: Arrival,
    asked: RequestHead,
    decision: Forward,
    request_id: bytes,
    end_stream: bool,
    nonce: Callable[[int], bytes],
) -> Departure | Answer:
    """The request `asked` in the form that is forwarded, or the answer that says why it cannot be."""
    authority = decision.authority
    # If the authority was rewritten, the client's has to be sendable too: it goes into X-Forwarded-Host.
    if not (_is_sendable(authority) and (authority is asked.authority or _is_sendable(asked.authority))):
        return _BAD_HOST
    backend = decision.backend
    fields = forwarding.request_fields(arrival, decision.listener, asked, request_id)
    asking = None if decision.inquiry is None else question(decision.inquiry, asked, fields)
    method, protocol, switch = asked.method, asked.protocol, None
    if method in maxforwards.METHODS:
        answer = maxforwards.last_hop(asked)
        if answer is not None:
            return answer
        fields = maxforwards.counted_down(fields)
    if protocol is not None:
        is_backend_http2 = backend.spec.protocol == "h2c"
        if is_ignored(asked, is_backend_http2=is_backend_http2):
            protocol = None
        else:
            switch = Switch(asked, end_stream, is_backend_http2=is_backend_http2, nonce=nonce(NONCE_BYTES))
            if not switch.is_possible:
                return _NO_KEY
            method, end_stream = switch.method, switch.ends_request
            fields = switch.request_fields(fields)
    if decision.request_edits is not None and asking is None:  # else `with_consent` makes them
        fields = decision.request_edits.apply(fields)
    head = RequestHead(
        method,
        backend.scheme,
        authority,
        decision.path,
        fields,
        protocol,
        asked.never_indexed,
    )
    return Departure(decision, head, end_stream, switch, asking)


def _is_sendable(authority: bytes) -> bool:
    """HTTP/2 allows authorities that no HTTP/1.1 backend should get."""
    return len(authority) <= _MAX_AUTHORITY_BYTES and _is_authority(authority)


@lru_cache(maxsize=4096)
def _is_authority(authority: bytes) -> bool:
    return not authority or is_authority(authority)
