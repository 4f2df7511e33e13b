"""The interface RegistrationServer: a connection's calls to the edge, and the edge's answers.

Parameters and results are frozen values with their layouts, encoded and decoded: a connector encodes calls and decodes
answers, an edge the reverse. The layouts are those of tunnelrpc.capnp. Decoding raises MalformedMessage. Pure.
"""

import uuid
from enum import IntEnum
from typing import Final

import msgspec

from proxy.tunnel.capnp import EMPTY, MalformedMessage, PointerList, Struct, Value, octets, text
from proxy.tunnel.identity import ClientInfo, ConnectionOptions
from proxy.tunnel.token import TunnelToken

REGISTRATION_SERVER: Final = 0xF71695EC7FE85497
DUPLICATE_CONNECTION: Final = "EDUPCONN"
_UNAUTHORIZED: Final = "Unauthorized"
_UUID_BYTES: Final = 16
_NS_PER_S: Final = 1_000_000_000
_MAX_INT64: Final = (1 << 63) - 1
_ERROR, _DETAILS = 0, 1


class Method(IntEnum):
    REGISTER_CONNECTION = 0
    UNREGISTER_CONNECTION = 1
    UPDATE_LOCAL_CONFIGURATION = 2


class Registration(msgspec.Struct, frozen=True):
    """The parameters of registerConnection."""

    token: TunnelToken
    conn_index: int
    """0 to 255: which of our connections this is."""
    options: ConnectionOptions


class ConnectionDetails(msgspec.Struct, frozen=True):
    """The connection is registered."""

    connection_id: uuid.UUID
    location: str
    """The edge's location, for example LIS or lhr10."""
    is_remotely_managed: bool


class Refusal(msgspec.Struct, frozen=True):
    """The edge does not register the connection."""

    cause: str
    should_retry: bool
    retry_after_s: float
    """Never negative; 0 if the edge asks for no wait."""

    @property
    def is_duplicate(self) -> bool:
        """This edge server already has a connection of ours with that index: another address will work."""
        return self.cause == DUPLICATE_CONNECTION

    @property
    def is_unauthorized(self) -> bool:
        """The token is refused, like that of a deleted tunnel."""
        return _UNAUTHORIZED in self.cause


def encode_registration(registration: Registration) -> Struct:
    token, options, client = registration.token, registration.options, registration.options.client
    info = Struct(
        b"",
        (
            octets(client.client_id),
            PointerList(tuple(map(text, client.features))) if client.features else None,
            text(client.version),
            text(client.arch),
        ),
    )
    flags = bytes((options.replace_existing, options.compression_quality, options.previous_attempts))
    auth = Struct(b"", (text(token.account_tag), octets(token.secret_bytes)))
    pointers = (auth, token.tunnel_id.bytes, Struct(_word(flags), (info, octets(options.origin_local_ip))))
    return Struct(_word(bytes((registration.conn_index,))), pointers)


def decode_registration(content: Value | None) -> Registration:
    params = _struct(content)
    auth, options = params.struct(0), params.struct(2)
    client = options.struct(0)
    return Registration(
        TunnelToken.of(auth.text(0), _uuid(params.octets(1), "tunnel id"), auth.octets(1)),
        params.unsigned(0, 1),
        ConnectionOptions(
            ClientInfo(client.octets(0), client.texts(1), client.text(2), client.text(3)),
            options.octets(1),
            options.bit(0),
            options.unsigned(1, 1),
            options.unsigned(2, 1),
        ),
    )


def encode_response(response: ConnectionDetails | Refusal) -> Struct:
    """The results of registerConnection."""
    if isinstance(response, ConnectionDetails):
        tag = _DETAILS
        flags = bytes((response.is_remotely_managed,))
        body = Struct(_word(flags), (response.connection_id.bytes, text(response.location)))
    else:
        tag = _ERROR
        retry_after_ns = min(round(response.retry_after_s * _NS_PER_S), _MAX_INT64)
        body = Struct(
            retry_after_ns.to_bytes(8, "little", signed=True) + _word(bytes((response.should_retry,))),
            (text(response.cause),),
        )
    return Struct(b"", (Struct(_word(bytes((tag,))), (body,)),))


def decode_response(content: Value | None) -> ConnectionDetails | Refusal:
    response = _struct(content).struct(0)
    tag, body = response.unsigned(0, 2), response.struct(0)
    if tag == _DETAILS:
        return ConnectionDetails(_uuid(body.octets(0), "connection id"), body.text(1), body.bit(0))
    if tag == _ERROR:
        return Refusal(body.text(0), body.bit(64), max(0.0, body.signed(0, 8) / _NS_PER_S))
    raise MalformedMessage(f"answer of kind {tag} to a registration, want {_ERROR} (error) or {_DETAILS} (details)")


def encode_local_configuration(config: bytes) -> Struct:
    """The parameters of updateLocalConfiguration; `config` is JSON."""
    return Struct(b"", (octets(config),))


def decode_local_configuration(content: Value | None) -> bytes:
    return _struct(content).octets(0)


def _struct(content: Value | None) -> Struct:
    if content is None:
        return EMPTY
    if not isinstance(content, Struct):
        raise MalformedMessage(f"a {type(content).__name__}, want a struct")
    return content


def _uuid(raw: bytes, what: str) -> uuid.UUID:
    if len(raw) != _UUID_BYTES:
        raise MalformedMessage(f"{what} of {len(raw)} bytes, want {_UUID_BYTES}")
    return uuid.UUID(bytes=raw)


def _word(content: bytes) -> bytes:
    return content.ljust(8, b"\0")
