"""Streams of the edge sorted: which are requests, and how they came in.

The edge marks what is no plain request by fields of its own; their names match in any case, their values exactly, and
of a repeated one the first counts. What is left of the head is the user's request, for the same exchange that serves
direct listeners; a WebSocket is one that has a `protocol`, as with HTTP/1.1: the client's own key is passed on, and 101
says that it is done (see `responses`).

Which door a request came to is for the edge to say: X-Forwarded-Proto, else `:scheme`. The client is who
Cf-Connecting-IP says. Requests of one client share an `Arrival`. One `Entrance` a connection. Pure.
"""

import ipaddress
import re
from enum import Enum, auto
from typing import Final

from proxy.exchange.client import Arrival
from proxy.heads import WEBSOCKET, Field, Fields, RequestHead
from proxy.recent import Recent
from proxy.routing import TUNNEL_HTTP, TUNNEL_HTTPS

UPGRADE: Final = b"cf-cloudflared-proxy-connection-upgrade"
TCP_SOURCE: Final = b"cf-cloudflared-proxy-src"
TRACE_ID: Final = b"cf-trace-id"
"""Asks for spans of the connector, which we do not make; backends never see it."""

MAX_ARRIVALS: Final = 8192
MAX_ADDRESS_BYTES: Final = 45
_ARRIVAL_BYTES: Final = 1
_VERSION: Final = b"sec-websocket-version"
_WEBSOCKET_13: Final[Field] = (_VERSION, b"13")
WEBSOCKET_UPGRADE: Final[Field] = (UPGRADE, WEBSOCKET)
_INTERNAL: Final = frozenset((UPGRADE, TCP_SOURCE, TRACE_ID))
_OCTET: Final = rb"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# Most clients, in the one spelling; `ipaddress` takes some microseconds.
_IPV4: Final = re.compile(rb"%b(?:\.%b){3}" % (_OCTET, _OCTET))
_SCHEMES: Final = {b"http": b"http", b"https": b"https"}

ArrivalKey = tuple[bytes, bytes]
"""Scheme, client address as the edge spells it."""


class StreamKind(Enum):
    HTTP = auto()
    WEBSOCKET = auto()
    TCP = auto()
    """Routing of private networks, which we do not offer."""
    CONFIGURATION = auto()
    CONTROL = auto()


_UPGRADES: Final = {b"update-configuration": StreamKind.CONFIGURATION, WEBSOCKET: StreamKind.WEBSOCKET}


class Entrance:
    """`edge_address` stands for the client where the edge does not name it."""

    __slots__ = ("_arrivals", "_edge_address", "_find")

    def __init__(self, edge_address: str) -> None:
        self._edge_address = edge_address
        self._arrivals: Recent[ArrivalKey, Arrival] = Recent(MAX_ARRIVALS, MAX_ARRIVALS)
        self._find = self._arrivals.young.get

    @property
    def known_clients(self) -> int:
        return len(self._arrivals)

    def admit(self, head: RequestHead) -> tuple[StreamKind, Arrival]:
        """Sort a new stream; `head` becomes the user's."""
        values = dict(head.fields)
        is_marked = UPGRADE in values or TCP_SOURCE in values or TRACE_ID in values
        kind = _unwrap(head) if is_marked else StreamKind.HTTP
        scheme = _SCHEMES.get(values.get(b"x-forwarded-proto", b"")) or _scheme_of(head, values)
        head.scheme = scheme
        key = (scheme, values.get(b"cf-connecting-ip", b""))
        return kind, self._find(key) or self._arrival(key)

    def _arrival(self, key: ArrivalKey) -> Arrival:
        arrival = self._arrivals.revive(key, _ARRIVAL_BYTES)
        if arrival is not None:
            return arrival
        scheme, address = key
        is_secure = scheme == b"https"
        arrival = Arrival(
            door=TUNNEL_HTTPS if is_secure else TUNNEL_HTTP,
            scheme=scheme,
            address=_address_of(address) or self._edge_address,
            protocol="HTTP/2",
            is_trusted=True,
            is_edge=True,
        )
        if len(address) <= MAX_ADDRESS_BYTES:
            self._arrivals.add(key, arrival, _ARRIVAL_BYTES)
        return arrival


def is_bodiless(head: RequestHead) -> bool:
    """The head says that no body follows, whether or not the stream has ended with it.

    The edge does not always end the stream of a GET with its head; waiting for that costs the request a round trip.
    """
    return (b"content-length", b"0") in head.fields


def _unwrap(head: RequestHead) -> StreamKind:
    """Classify by the edge's own fields, and take them out."""
    kind = _kind_of(head.fields)
    fields = [field for field in head.fields if field[0] not in _INTERNAL]
    if kind is StreamKind.WEBSOCKET:
        # The only version there is; a client that knows another has been turned away by the edge.
        fields = [*(field for field in fields if field[0] != _VERSION), _WEBSOCKET_13]
        head.method = b"GET"
        head.protocol = WEBSOCKET
    head.fields = fields
    return kind


def _kind_of(fields: Fields) -> StreamKind:
    upgrade = _first(fields, UPGRADE)
    if upgrade in _UPGRADES:
        return _UPGRADES[upgrade]
    if _first(fields, TCP_SOURCE):
        return StreamKind.TCP
    return StreamKind.CONTROL if upgrade == b"control-stream" else StreamKind.HTTP


def _first(fields: Fields, wanted: bytes) -> bytes:
    return next((value for name, value in fields if name == wanted), b"")


def _scheme_of(head: RequestHead, values: dict[bytes, bytes]) -> bytes:
    """For the spellings that are not usual."""
    said = values.get(b"x-forwarded-proto", b"").strip().lower()
    return _SCHEMES.get(said) or _SCHEMES.get(head.scheme.lower()) or b"http"


def _address_of(text: bytes) -> str:
    if not text or len(text) > MAX_ADDRESS_BYTES:
        return ""
    if _IPV4.fullmatch(text):
        return text.decode()
    try:
        return str(ipaddress.ip_address(text.decode("ascii", "replace")))
    except ValueError:
        return ""
