"""Classifies the edge's streams: which are requests, and how they arrived.

The edge marks everything but plain requests with its own fields. Their values are compared exactly; of a repeated field
the first counts. The rest of the head is the user's request, for the same exchange that serves direct listeners. A
WebSocket is a request with a `protocol`, as over HTTP/1.1: the client's own key is passed on, and the backend accepts
with 101 (see `responses`).

The edge tells which door a request came to, by X-Forwarded-Proto, otherwise by `:scheme`, and who the client is, by
Cf-Connecting-IP. Requests of one client share an `Arrival`. One `Entrance` per connection. Pure.
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
"""Asks the connector for trace spans, which we do not create; never passed on to backends."""

MAX_ARRIVALS: Final = 8192
MAX_ADDRESS_BYTES: Final = 45
_ARRIVAL_BYTES: Final = 1
_VERSION: Final = b"sec-websocket-version"
_WEBSOCKET_13: Final[Field] = (_VERSION, b"13")
WEBSOCKET_UPGRADE: Final[Field] = (UPGRADE, WEBSOCKET)
_INTERNAL: Final = frozenset((UPGRADE, TCP_SOURCE, TRACE_ID))
_OCTET: Final = rb"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# A fast path for most clients: `ipaddress` takes a few microseconds.
_IPV4: Final = re.compile(rb"%b(?:\.%b){3}" % (_OCTET, _OCTET))
_SCHEMES: Final = {b"http": b"http", b"https": b"https"}

ArrivalKey = tuple[bytes, bytes]
"""The scheme, and the client's address as the edge spells it."""


class StreamKind(Enum):
    HTTP = auto()
    WEBSOCKET = auto()
    TCP = auto()
    """Private network routing, which we do not offer."""
    CONFIGURATION = auto()
    CONTROL = auto()


_UPGRADES: Final = {b"update-configuration": StreamKind.CONFIGURATION, WEBSOCKET: StreamKind.WEBSOCKET}


class Entrance:
    """`edge_address` is used as the client's address if the edge does not name one."""

    __slots__ = ("_arrivals", "_edge_address", "_find")

    def __init__(self, edge_address: str) -> None:
        self._edge_address = edge_address
        self._arrivals: Recent[ArrivalKey, Arrival] = Recent(MAX_ARRIVALS, MAX_ARRIVALS)
        self._find = self._arrivals.young.get

    @property
    def known_clients(self) -> int:
        return len(self._arrivals)

    def admit(self, head: RequestHead) -> tuple[StreamKind, Arrival]:
        """Classify a new stream, and turn `head` into the user's request."""
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
    """Whether the head says that no body follows, even if the stream has not ended.

    The edge does not always end the stream of a GET with its head; waiting for the end costs a round trip.
    """
    return (b"content-length", b"0") in head.fields


def _unwrap(head: RequestHead) -> StreamKind:
    """Classify by the edge's own fields, and remove them."""
    kind = kind_of(head.fields)
    fields = [field for field in head.fields if field[0] not in _INTERNAL]
    if kind is StreamKind.WEBSOCKET:
        # The only version there is; the edge has already refused clients that want another.
        fields = [*(field for field in fields if field[0] != _VERSION), _WEBSOCKET_13]
        head.method = b"GET"
        head.protocol = WEBSOCKET
    head.fields = fields
    return kind


def kind_of(fields: Fields) -> StreamKind:
    """What the edge's own fields in a head make of its stream."""
    upgrade = _first(fields, UPGRADE)
    if upgrade in _UPGRADES:
        return _UPGRADES[upgrade]
    if _first(fields, TCP_SOURCE):
        return StreamKind.TCP
    return StreamKind.CONTROL if upgrade == b"control-stream" else StreamKind.HTTP


def _first(fields: Fields, wanted: bytes) -> bytes:
    return next((value for name, value in fields if name == wanted), b"")


def _scheme_of(head: RequestHead, values: dict[bytes, bytes]) -> bytes:
    """For unusual spellings."""
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
