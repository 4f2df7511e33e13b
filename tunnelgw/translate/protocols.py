"""The protocol that a Service's port speaks, by its `appProtocol`."""

from typing import Literal, TypeAlias

Protocol: TypeAlias = Literal["http", "h2c", "https"]
"""As the document spells it."""

_BY_APP_PROTOCOL: dict[str, Protocol] = {
    "": "http",
    "http": "http",
    "tcp": "http",  # tells service meshes not to look closer: as good as no appProtocol
    "ws": "http",
    "h2c": "h2c",
    # Not defined by Kubernetes, but used in charts for service meshes, and unambiguous.
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
    """None: the name is unknown."""
    return _BY_APP_PROTOCOL.get(_name(app_protocol))


def is_web_socket(app_protocol: str) -> bool:
    return _name(app_protocol) in _WEB_SOCKETS


def _name(app_protocol: str) -> str:
    """The name in lower case, without Kubernetes' prefix: protocol names are not case-sensitive (RFC 6335, 5.1).
    Kubernetes defines some with its prefix; charts put it before others too, or leave it out.
    """
    return app_protocol.lower().removeprefix(_PREFIX)
