"""Heads between the clients of an edge and its connectors, as the real edge makes and reads them.

Requests are sent as plain fields, plus those that the edge adds for the backend. In a response, one field holds the
user's fields in serialised form; any other field must be one that connectors are known to send.
"""

from __future__ import annotations

import secrets

import msgspec

from proxy.exchange.hopbyhop import response_fields
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.tunnel.responses import META, RESERVED_PREFIXES, SERIALIZED
from tests.support.edge.serialized import deserialize

UPGRADE = b"cf-cloudflared-proxy-connection-upgrade"
WEBSOCKET = (UPGRADE, b"websocket")
CONTROL_STREAM = (UPGRADE, b"control-stream")
UPDATE_CONFIGURATION = (UPGRADE, b"update-configuration")

_TRACING = b"cf-int-cloudflared-tracing"
_METAS = {
    b'{"src":"origin"}': "origin",
    b'{"src":"cloudflared"}': "cloudflared",
    b'{"src":"cloudflared","flow_rate_limited":true}': "cloudflared",
}
_BESIDE = frozenset((SERIALIZED, META, _TRACING, b"content-length", b"content-type", b"date"))
"""The last two are added by the HTTP library of the provider's connector."""
_OF_THE_EDGE = frozenset(
    b"cf-connecting-ip cf-ipcountry cf-ray cf-visitor x-forwarded-proto cdn-loop connection http2-settings keep-alive"
    b" proxy-connection transfer-encoding upgrade".split()
)
"""Client values for these fields are replaced, or end at the edge."""


class Response(msgspec.Struct, frozen=True):
    """A connector's final head, parsed."""

    status_code: int
    source: str
    """`origin` or `cloudflared` (the connector itself); empty if not given."""
    fields: Fields
    """The user's fields."""
    raw: ResponseHead

    def values(self, name: bytes) -> list[bytes]:
        return [value for field, value in self.fields if field == name]


def request_head(head: RequestHead, client_address: str, scheme: bytes, colo: str) -> RequestHead:
    """A client's request in the form in which it is sent to a connector."""
    ray = f"{secrets.token_hex(8)}-{colo}".encode()
    address = client_address.encode()
    fields = [field for field in head.fields if field[0] not in _OF_THE_EDGE and not _is_reserved(field[0])]
    forwarded = [value for name, value in fields if name == b"x-forwarded-for"]
    loops = [value for name, value in head.fields if name == b"cdn-loop"]
    fields = [field for field in fields if field[0] not in (b"te", b"x-forwarded-for")]
    if any(name == b"te" and b"trailers" in value for name, value in head.fields):
        fields.append((b"te", b"trailers"))
    fields += [
        (b"cdn-loop", b", ".join([*loops, b"cloudflare; loops=1"])),
        (b"cf-connecting-ip", address),
        (b"cf-ipcountry", b"XX"),
        (b"cf-ray", ray),
        (b"cf-visitor", b'{"scheme":"%b"}' % scheme),
        (b"x-forwarded-for", b", ".join([*forwarded, address])),
        (b"x-forwarded-proto", scheme),
    ]
    method = head.method
    if head.protocol is not None:
        method = b"GET"
        fields.append(WEBSOCKET)
    return RequestHead(method, scheme, head.authority, head.path, fields)


def read_response(head: ResponseHead) -> Response:
    """Raises AssertionError for anything that a connector may not send."""
    raw: dict[bytes, bytes] = {}
    for name, value in head.fields:
        assert name in _BESIDE, f"field {name!r} beside the serialised ones"
        assert name not in raw, f"field {name!r} twice"
        raw[name] = value
    assert raw.get(META) in _METAS, f"{META!r} is {raw.get(META)!r}, want one of {list(_METAS)}"
    source = _METAS[raw[META]]
    serialized = raw.get(SERIALIZED)
    if source == "cloudflared":
        assert serialized is None, "serialised fields in a response that is not of the origin"
        return Response(head.status_code, source, [], head)
    assert serialized is not None, "a response of the origin without serialised fields"
    try:
        fields = [(name.lower(), value) for name, value in deserialize(serialized)]
    except ValueError as error:
        raise AssertionError(f"serialised fields that cannot be read: {error}") from error
    for name, _ in fields:
        assert not name.startswith(RESERVED_PREFIXES), f"field {name!r} of the origin, which is reserved"
    lengths = [value for name, value in fields if name == b"content-length"]
    assert b"content-length" not in raw or lengths in ([], [raw[b"content-length"]]), "two values of content-length"
    return Response(head.status_code, source, fields, head)


def client_head(response: Response, ray: bytes) -> ResponseHead:
    """The head that the client of the front door gets."""
    return ResponseHead(response.status_code, [*response_fields(response.fields), (b"cf-ray", ray)])


def _is_reserved(name: bytes) -> bool:
    return name.startswith((b"cf-cloudflared-", b"cf-int-", b"cf-proxy-"))
