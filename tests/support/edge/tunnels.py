"""The tunnels that an edge knows, and who may register for them."""

from __future__ import annotations

import base64
import secrets
import uuid

import msgspec

from proxy.tunnel.registration import Refusal, Registration
from tests.support.edge.behaviour import unauthorized


class Tunnel(msgspec.Struct, frozen=True):
    account_tag: str
    tunnel_id: uuid.UUID
    secret: bytes
    endpoint: str = ""
    """The region whose edge its connectors must use."""

    @property
    def token(self) -> str:
        """The token that its connectors are given."""
        content = {"a": self.account_tag, "t": str(self.tunnel_id), "s": base64.b64encode(self.secret).decode()}
        if self.endpoint:
            content["e"] = self.endpoint
        return base64.b64encode(msgspec.json.encode(content)).decode()

    def __repr__(self) -> str:
        return f"<Tunnel {self.tunnel_id}>"


def new_tunnel() -> Tunnel:
    return Tunnel(secrets.token_hex(16), uuid.uuid4(), secrets.token_bytes(32))


class Tunnels:
    """Tests may change it in any thread; reads are of single values."""

    def __init__(self) -> None:
        self._tunnels: dict[uuid.UUID, Tunnel] = {}
        self._hosts: dict[bytes, uuid.UUID] = {}

    def add(self, tunnel: Tunnel, *hosts: str) -> None:
        """Add a tunnel, replacing one with the same id. Without `hosts`, it serves all that no other tunnel has."""
        self._tunnels[tunnel.tunnel_id] = tunnel
        for host in hosts:
            self._hosts[host.lower().encode()] = tunnel.tunnel_id

    def remove(self, tunnel_id: uuid.UUID) -> None:
        self._tunnels.pop(tunnel_id)

    def flaw_of(self, registration: Registration) -> Refusal | None:
        """Why the registration is refused; None if it is not."""
        token = registration.token
        tunnel = self._tunnels.get(token.tunnel_id)
        if tunnel is None:
            return unauthorized("Unauthorized: Tunnel not found")
        if tunnel.account_tag != token.account_tag:
            return unauthorized("Unauthorized: Account doesn't have tunnel")
        if tunnel.secret != token.secret_bytes:
            return unauthorized()
        return None

    def tunnel_for(self, authority: bytes) -> uuid.UUID | None:
        """The tunnel that serves this host: named by `add`, or by its own name, or the one that takes all others."""
        host = authority.partition(b":")[0].lower()
        if host in self._hosts:
            return self._hosts[host]
        own, _, domain = host.partition(b".")
        if domain == b"cfargotunnel.com":
            return next((each for each in self._tunnels if str(each).encode() == own), None)
        named = set(self._hosts.values())
        return next((each for each in self._tunnels if each not in named), None)
