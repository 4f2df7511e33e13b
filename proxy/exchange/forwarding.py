"""The request fields that a backend gets: without hop-by-hop fields, and with a description of the client.

X-Forwarded-For, -Proto, -Host and -Port say who the client is and what it asked for; so do Forwarded (RFC 7239) and
Via, if the document wants them. What becomes of such fields in a received request depends on its sender:

1. an unknown client: all of them are dropped and written anew, and other names that backends take for the word of a
   proxy are dropped (X-Forwarded-*, Cf-*, X-Real-IP, True-Client-IP);
2. a trusted proxy: its address is appended to X-Forwarded-For and Forwarded, the others are kept if they exist;
3. the tunnel's edge: everything passes unchanged, since the edge has appended already; what is missing is added.

Other spellings that backends may take for such a field, such as x_real_ip or x.real.ip, are dropped from all three: no
proxy is known to write them, and one that does not know them passes them on from anybody.

Client-Cert (RFC 9440) is believed only from trusted proxies, whose own certificates are not those of clients. The edge
does not know the field: in a request from there it came from a client.

The request id is taken from 2 and 3 and is new for 1. Trace context (traceparent, tracestate) is not touched. A field
`Proxy`, which HTTP does not know, is dropped from all: programs of the CGI family take it for the variable HTTP_PROXY,
and send their own requests where it says (CVE-2016-5385).
The names are in `routing.clientfields`, since header conditions see these fields as the backend gets them.
Pure. What the requests of a connection have in common is computed once per connection.
"""

from typing import Final

import msgspec

from proxy.document import Forwarding as ForwardingSpec
from proxy.exchange.client import Arrival
from proxy.exchange.hopbyhop import (
    COOKIE,
    DROP,
    FIRST_FREE,
    KEEP,
    TE,
    Special,
    Verdicts,
    settle,
    sort_out,
    trailer_fields,
)
from proxy.heads import Field, Fields, RequestHead
from proxy.routing import Listener, header
from proxy.routing.clientfields import (
    CERTIFICATES,
    FORWARDED,
    FORWARDED_FOR,
    IMPERSONAL,
    PREFIXES,
    REQUESTED,
)

_FORWARDED_FOR, _FORWARDED, _GIVEN = range(FIRST_FREE, FIRST_FREE + 3)
_CLIENT_CERT: Final = CERTIFICATES[0]
_OF_PROXIES: Final = (*PREFIXES, *IMPERSONAL, *CERTIFICATES)
_MAX_ID_BYTES: Final = 128
_MAX_DESCRIPTIONS: Final = 8192
_MAX_KEPT_AUTHORITY_BYTES: Final = 260
_VERSIONS: Final = {"HTTP/1.0": b"1.0", "HTTP/1.1": b"1.1", "HTTP/2": b"2.0"}


class Description(msgspec.Struct, frozen=True, gc=False):
    """The fields that describe all requests of a connection, or of the edge to a door, with one authority."""

    arrival: Arrival
    listener: Listener
    fields: tuple[Field, ...]
    besides: dict[bytes, tuple[Field, ...]]
    """`fields` without the one that a trusted client has sent, by its name."""


DescriptionKey = tuple[int | str, bytes]
"""A connection or, for the edge, a door; and an authority."""


class Forwarding:
    """The document's `forwarding`, compiled once for all tables with the same."""

    __slots__ = (
        "_descriptions",
        "_edge",
        "_has_client_cert",
        "_has_forwarded",
        "_has_via",
        "_trusted",
        "_untrusted",
        "request_id_name",
        "spec",
    )

    def __init__(self, spec: ForwardingSpec) -> None:
        self.spec = spec
        self.request_id_name = spec.request_id_header.lower().encode()
        self._has_client_cert = spec.client_cert
        self._has_forwarded = spec.forwarded
        self._has_via = spec.via
        ours = dict.fromkeys((FORWARDED_FOR, FORWARDED, *REQUESTED, *IMPERSONAL, *CERTIFICATES), DROP)
        shared = {b"te": TE, b"cookie": COOKIE, b"proxy": DROP, self.request_id_name: DROP}
        believed = {**shared, **dict.fromkeys(REQUESTED, _GIVEN)}
        if spec.forwarded:
            believed[FORWARDED] = _FORWARDED
        self._untrusted = Verdicts({**ours, **shared}, PREFIXES)
        self._trusted = Verdicts({**believed, FORWARDED_FOR: _FORWARDED_FOR}, usual_prefixes=_OF_PROXIES)
        unknown_there = dict.fromkeys(CERTIFICATES, DROP)
        self._edge = Verdicts(
            {**believed, **unknown_there, FORWARDED_FOR: _GIVEN if spec.forwarded else KEEP}, usual_prefixes=_OF_PROXIES
        )
        self._descriptions: dict[DescriptionKey, Description] = {}

    def request_id_of(self, head: RequestHead) -> bytes | None:
        """The request id in the head, which only a trusted client may set."""
        given = header(head, self.request_id_name)
        return given if given and len(given) <= _MAX_ID_BYTES else None

    def request_fields(self, arrival: Arrival, listener: Listener, head: RequestHead, request_id: bytes) -> Fields:
        """The fields to send, in a new list."""
        verdicts = self._untrusted
        if arrival.is_trusted:
            verdicts = self._edge if arrival.is_edge else self._trusted
        kept, special = sort_out(head.fields, verdicts)
        # The edge's clients are all described alike. A description keeps its arrival alive, so its id stays unique.
        key = (arrival.door if arrival.is_edge else id(arrival), head.authority)
        description = self._descriptions.get(key)
        if description is None or description.listener is not listener:
            description = self._describe(arrival, listener, head.authority)
            self._keep(key, description)
        if special and (len(special) > 1 or special[0][0] < FIRST_FREE):
            kept, special = settle(kept, special)
        if not special:
            kept += description.fields
        elif len(special) == 1 and special[0][0] == _GIVEN and not self._has_forwarded:
            # The usual case for the edge, which sends the scheme and none of the others.
            given = special[0][1]
            kept.append(given)
            kept += description.besides[given[0]]
        else:
            kept += self._merged(description, head.authority, special)
        kept.append((self.request_id_name, request_id))
        return kept

    def request_trailers(self, fields: Fields) -> Fields:
        """The trailers to send. In trailers nobody is trusted: some backends read them as if they were in the head, and
        trusted proxies pass on what their clients sent.
        """
        kept, _ = sort_out(trailer_fields(fields), self._untrusted)
        return kept

    def _describe(self, arrival: Arrival, listener: Listener, authority: bytes) -> Description:
        fields: list[Field] = []
        if not arrival.is_edge and arrival.address != "unix":
            fields.append((FORWARDED_FOR, arrival.address.encode()))
        fields.append((b"x-forwarded-proto", arrival.scheme))
        if authority:
            fields.append((b"x-forwarded-host", authority))
        fields.append((b"x-forwarded-port", b"%d" % listener.public_port))
        if self._has_client_cert and arrival.client_cert and not arrival.is_trusted:
            fields.append((_CLIENT_CERT, arrival.client_cert))
        if self._has_forwarded:
            address = b"" if arrival.is_edge else arrival.address.encode()
            fields.append((FORWARDED, _forwarded(address, arrival.scheme, authority)))
        if self._has_via:
            fields.append((b"via", _VERSIONS.get(arrival.protocol, b"1.1") + b" tunnelgw"))
        # Only of use for trusted clients.
        names = REQUESTED if arrival.is_trusted else ()
        besides = {name: tuple(field for field in fields if field[0] != name) for name in names}
        return Description(arrival, listener, tuple(fields), besides)

    def _keep(self, key: DescriptionKey, description: Description) -> None:
        if len(key[1]) <= _MAX_KEPT_AUTHORITY_BYTES:
            if len(self._descriptions) >= _MAX_DESCRIPTIONS:
                self._descriptions.clear()
            self._descriptions[key] = description

    @staticmethod
    def _merged(description: Description, authority: bytes, given: Special) -> Fields:
        """The fields that a trusted client has sent, followed by our own."""
        arrival = description.arrival
        fields = [field for verdict, field in given if verdict == _GIVEN]
        names = {name for name, _ in fields}
        chains: dict[bytes, list[bytes]] = {}
        for verdict, (name, value) in given:
            if verdict != _GIVEN and value:
                chains.setdefault(name, []).append(value)
        for name, value in description.fields:
            if name == FORWARDED and arrival.is_edge:
                addresses = [given_value for given_name, given_value in fields if given_name == FORWARDED_FOR]
                client = addresses[-1].rpartition(b",")[2].strip() if addresses else b""
                value = _forwarded(client, arrival.scheme, authority)  # noqa: PLW2901
            if name in chains:
                fields.append((name, b", ".join((*chains.pop(name), value))))
            elif name not in names:
                fields.append((name, value))
        # Those to which we had nothing to append, as for clients without an address.
        fields += [(name, b", ".join(values)) for name, values in chains.items()]
        return fields


def _forwarded(address: bytes, scheme: bytes, authority: bytes) -> bytes:
    """One element of Forwarded (RFC 7239, 4)."""
    node = b'"[%b]"' % address if b":" in address else address
    if not address or address == b"unix":
        node = b"unknown"
    host = b';host="%b"' % authority if authority else b""
    return b"for=%b%b;proto=%b" % (node, host, scheme)
