"""The protocol that a Service's port speaks, by its `appProtocol`."""

from typing import Literal, TypeAlias

Protocol: TypeAlias = Literal["http", "h2c", "https"]
"""As the document has it."""

_BY_APP_PROTOCOL: dict[str, Protocol] = {
    "": "http",
    "http": "http",
    "tcp": "http",  # for service meshes, which are to look no closer: says as much as none
    "ws": "http",
    "h2c": "h2c",
    # No names of Kubernetes, but what charts for service meshes write, and they can mean nothing else.
    "http2": "h2c",
    "grpc": "h2c",
    "https": "https",
    "wss": "https",
}
_WEB_SOCKETS = frozenset(("ws", "wss"))
_PREFIX = "kubernetes.io/"

KNOWN = ", ".join(sorted(filter(None, _BY_APP_PROTOCOL)))
"""For messages."""


def protocol_of(app_protocol: str) -> Protocol | None:
    """None: not known."""
    return _BY_APP_PROTOCOL.get(_name(app_protocol))


def is_web_socket(app_protocol: str) -> bool:
    return _name(app_protocol) in _WEB_SOCKETS


def _name(app_protocol: str) -> str:
    """Protocol names are not case-sensitive (RFC 6335, 5.1). Kubernetes has its prefix before some of them, and charts
    have it before others, or leave it out.
    """
    return app_protocol.lower().removeprefix(_PREFIX)
