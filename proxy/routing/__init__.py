"""Routing: document in, compiled table out; table and request head in, decision out.

Pure: no sockets, and no clock or random numbers of its own. A table is built once (`compile_table`, or in slices with
`TableBuilder`) and never changed; `decide` may be called from any thread. Precedence is that of Gateway API, see
`match` and `hosts`; how hosts and paths are normalised is in `paths`.

    table = compile_table(document.decode(data))
    decision = decide(table, TUNNEL_HTTPS, head, random.random, now_s, sender)

explain                                 why a request is decided as it is
decide > decision                       the decision, and what it can be
table > listener                        the document, compiled; where requests enter
hosts > indexes > match > asked         the best match, by host, by path, by conditions; what these ask of a request
rule · cors · session · edits           compiled rules and what belongs to them
sender > clientfields                   who sends a request, and which fields say so
head · paths                            a head as routing reads it; hosts and paths, normalised
"""

from proxy.routing.decide import decide
from proxy.routing.decision import Answer, Decision, Forward, Inquiry, Redirect, grpc_status_of
from proxy.routing.edits import HeaderEdits
from proxy.routing.explain import BackendShare, Explanation, MatchPlace, Miss, explain
from proxy.routing.head import Head, PlainHead, client_scheme, header
from proxy.routing.hosts import is_grpc
from proxy.routing.listener import TUNNEL_HTTP, TUNNEL_HTTPS, Door, Listener, socket_door
from proxy.routing.paths import host_of
from proxy.routing.rule import Backend, RetryPolicy, Rule
from proxy.routing.sender import STRANGER, Sender
from proxy.routing.session import Persistence, Session, fingerprint
from proxy.routing.table import Table, TableBuilder, compile_table

__all__ = [
    "STRANGER",
    "TUNNEL_HTTP",
    "TUNNEL_HTTPS",
    "Answer",
    "Backend",
    "BackendShare",
    "Decision",
    "Door",
    "Explanation",
    "Forward",
    "Head",
    "HeaderEdits",
    "Inquiry",
    "Listener",
    "MatchPlace",
    "Miss",
    "Persistence",
    "PlainHead",
    "Redirect",
    "RetryPolicy",
    "Rule",
    "Sender",
    "Session",
    "Table",
    "TableBuilder",
    "client_scheme",
    "compile_table",
    "decide",
    "explain",
    "fingerprint",
    "grpc_status_of",
    "header",
    "host_of",
    "is_grpc",
    "socket_door",
]
