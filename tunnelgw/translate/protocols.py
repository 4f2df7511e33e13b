"""The protocol that a Service's port speaks, by its `appProtocol`."""

from typing import Literal, TypeAlias

Protocol: TypeAlias = Literal["http", "h2c", "https"]
"""As the document has it."""

_BY_APP_PROTOCOL: dict[str, Protocol] = {
    "": "http",
    "http": "http",
    "kubernetes.io/ws": "http",
    "kubernetes.io/h2c": "h2c",
    # No names of Kubernetes, but what charts for service meshes write, and they can mean nothing else.
    "http2": "h2c",
    "grpc": "h2c",
    "https": "https",
    "kubernetes.io/wss": "https",
}
_WEB_SOCKETS = frozenset(("kubernetes.io/ws", "kubernetes.io/wss"))

KNOWN = ", ".join(sorted(filter(None, _BY_APP_PROTOCOL)))
"""For messages."""


def protocol_of(app_protocol: str) -> Protocol | None:
    """None: not known. Protocol names are not case-sensitive (RFC 6335, 5.1)."""
    return _BY_APP_PROTOCOL.get(app_protocol.lower())


def is_web_socket(app_protocol: str) -> bool:
    return app_protocol.lower() in _WEB_SOCKETS
