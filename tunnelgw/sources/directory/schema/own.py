"""Shapes of our own kinds, the same as in their CRDs under helm/."""

from typing import Any

from tunnelgw.model.own import TUNNEL_ID
from tunnelgw.sources.directory.schema.common import DURATION, HEADER_NAME, NAME, PORT, PRECISE_HOSTNAME
from tunnelgw.sources.directory.schema.shapes import Fields, Flag, Items, Number, Shape, Text

_IPV6 = r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"


def _one_door(direct: Any) -> str | None:
    return (
        "exactly one of addresses and service must be set" if ("addresses" in direct) == ("service" in direct) else None
    )


def _doors(spec: Any) -> str | None:
    if "tunnelID" not in spec and "direct" not in spec:
        return "one of tunnelID and direct must be set"
    for field in ("providerCredentialsSecretRef", "tunnelTokenSecretRef"):
        if field in spec and "tunnelID" not in spec:
            return f"{field} needs a tunnelID"
    needed = {"Tunnel": "tunnelID", "Direct": "direct"}.get(spec.get("publish", ""))
    return f"publish {spec['publish']} needs {needed}" if needed and needed not in spec else None


def _secret(key: str, *, is_elsewhere: bool) -> Fields:
    fields: dict[str, Shape] = {
        "name": NAME,
        "key": Text(1, 253, r"[-._a-zA-Z0-9]+", "a valid key of a Secret", default=key),
    }
    return Fields({**fields, **({"namespace": _PLAIN_NAMESPACE} if is_elsewhere else {})}, "name")


_PLAIN_NAMESPACE = Text(1, 63)
_ADDRESS = Text(1, 253, r"[0-9A-Fa-f:.]+|[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "an IP address, or a hostname in lower case")
_NETWORK = Text(2, 49, r"[0-9A-Fa-f:.]+(/[0-9]{1,3})?", "an IP address, or a network such as 10.0.0.0/8")
_PROXY = Fields(
    {
        "mergeSlashes": Flag(),
        "forwarding": Fields(
            {
                "trustedProxies": Items(_NETWORK, 0, 256, is_set=True),
                "proxyProtocol": Items(_NETWORK, 0, 256, is_set=True),
                "clientCert": Flag(),
                "forwarded": Flag(),
                "via": Flag(),
                "requestIdHeader": HEADER_NAME,
            }
        ),
        "limits": Fields(
            {
                "maxHeaderBytes": Number(1024, 1024 * 1024),
                "maxUriBytes": Number(256, 1024 * 1024),
                "maxConnections": Number(1, 1_000_000),
                "headerTimeout": DURATION,
                "idleTimeout": DURATION,
                "streamIdleTimeout": DURATION,
                "connectTimeout": DURATION,
                "requestTimeout": DURATION,
                "backendIdleTimeout": DURATION,
            }
        ),
    }
)


def _config(*, is_elsewhere: bool, most_addresses: int) -> dict[str, Shape]:
    """`is_elsewhere`: whether it may name objects of other namespaces. `most_addresses`: the limit for its pool."""
    service: dict[str, Shape] = {
        "name": NAME,
        **({"namespace": _PLAIN_NAMESPACE} if is_elsewhere else {}),
        "addresses": Items(_ADDRESS, 0, 16, is_set=True),
    }
    return {
        "tunnelID": Text(0, None, TUNNEL_ID, "a UUID in lower case"),
        "accountID": Text(0, None, "[0-9a-f]{32}", "an account: 32 hexadecimal digits in lower case"),
        "providerCredentialsSecretRef": _secret("api-token", is_elsewhere=is_elsewhere),
        "direct": Fields(
            {"addresses": Items(Text(2, 45), 1, most_addresses, is_set=True), "service": Fields(service, "name")},
            rules=[_one_door],
        ),
        "publish": Text(words=("Tunnel", "Direct")),
        "proxy": _PROXY,
    }


def _tls(spec: Any) -> str | None:
    return "tls needs protocol https" if "tls" in spec and spec["protocol"] != "https" else None


GATEWAY_CLASS_CONFIG = Fields(_config(is_elsewhere=True, most_addresses=256), rules=[_doors])
GATEWAY_CONFIG = Fields(
    {
        **_config(is_elsewhere=False, most_addresses=16),
        "tunnelTokenSecretRef": _secret("tunnel-token", is_elsewhere=False),
        "authSecretRef": _secret("auth-token", is_elsewhere=False),
        "proxyEndpoints": Items(
            Text(0, 253, r"https?://[^/?#@]+|unix:/.+", "http://host:port, https://host:port or unix:/path"),
            1,
            16,
            is_set=True,
        ),
    },
    rules=[_doors],
)
BACKEND = Fields(
    {
        # In an address with one colon, what follows the colon is a port, which has its own field.
        "host": Text(1, 253, rf"{_IPV6}|{_LABEL}(\.{_LABEL})*\.?", "a domain name or an IP address"),
        "port": PORT,
        "protocol": Text(words=("http", "h2c", "https"), default="http"),
        "tls": Fields({"hostname": PRECISE_HOSTNAME, "caCertificate": Text(1, 65536)}, "hostname"),
    },
    "host",
    "port",
    rules=[_tls],
)
