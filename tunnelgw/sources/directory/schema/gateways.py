"""Shapes of GatewayClass, Gateway and ListenerSet."""

import re
from collections.abc import Iterable
from typing import Any

from tunnelgw.model.gateways import is_ip_address
from tunnelgw.model.meta import SUBDOMAIN
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.sources.directory.schema import filters
from tunnelgw.sources.directory.schema.common import (
    ADDRESS_TYPE,
    CONTROLLER,
    HOSTNAME,
    KEY,
    LOCAL_REF,
    OBJECT_REF,
    OPTIONS,
    PARAMETERS_REF,
    PARENT_GATEWAY,
    PORT,
    PROTOCOL,
    SECRET_REF,
    SECTION,
    group,
    kind,
)
from tunnelgw.sources.directory.schema.shapes import Fields, Items, Shape, Table, Text

_PLAIN = ("HTTP", "TCP", "UDP")


def _listener(value: Any) -> str | None:
    protocol, tls = value["protocol"], value.get("tls")
    if protocol in _PLAIN and tls is not None:
        return f"tls is not allowed with protocol {protocol}"
    if protocol == "HTTPS" and tls is not None and tls["mode"] != "Terminate":
        return "tls.mode must be Terminate for protocol HTTPS"
    if protocol == "TLS" and tls is None:
        return "tls.mode is missing, which protocol TLS needs"
    if protocol in ("TCP", "UDP") and value.get("hostname"):
        return f"hostname is not allowed with protocol {protocol}"
    if protocol not in ("HTTP", "HTTPS") and "filters" in value:
        return f"filters are not allowed with protocol {protocol}"
    return None


def _distinct_listeners(listeners: Any) -> str | None:
    seen: set[tuple[Any, ...]] = set()
    for listener in listeners:
        place = (listener["port"], listener["protocol"], listener.get("hostname"))
        if place in seen:
            return f"listener {listener['name']} has the same port, protocol and hostname as another one"
        seen.add(place)
    return None


def _certificates(tls: Any) -> str | None:
    if tls["mode"] == "Terminate" and not tls.get("certificateRefs") and not tls.get("options"):
        return "certificateRefs or options must be set for mode Terminate"
    return None


def _distinct_addresses(addresses: Any) -> str | None:
    seen: set[tuple[str, str]] = set()
    for address in addresses:
        place = (address["type"], address.get("value", ""))
        if "value" in address and place[0] in ("IPAddress", "Hostname") and place in seen:
            return f"{place[0]} {place[1]} occurs twice"
        seen.add(place)
    return None


_HOSTNAME = re.compile(rf"(\*\.)?{SUBDOMAIN}")
_ROUTABILITY = rf"|Cluster|(?!([^/]*\.)?k8s\.io/){SUBDOMAIN}/.+"


def _address(address: Any) -> str | None:
    value = address.get("value")
    if value is not None and address["type"] == "Hostname" and not _HOSTNAME.fullmatch(value):
        return f"{value!r} is not a domain name in lower case"
    if value is not None and address["type"] == "IPAddress" and not is_ip_address(value):
        return f"{value!r} is not an IP address"
    return None


_KEY = re.compile(KEY)


def _keys(table: Any) -> str | None:
    bad = [key for key in table if not _KEY.fullmatch(key) or len(key.split("/")[0]) >= _LONGEST_PREFIX]
    return f"{bad[0]!r} is not a key such as example.org/name" if bad else None


_LONGEST_PREFIX = 253


def _bundles(refs: Any) -> str | None:
    if any(
        (ref["group"], ref["kind"]) == ("certificates.k8s.io", "ClusterTrustBundle") and "namespace" in ref
        for ref in refs
    ):
        return "namespace is not allowed in references to a ClusterTrustBundle"
    return None


def _selector() -> Fields:
    requirement: dict[str, Shape] = {"key": Text(), "operator": Text(), "values": Items(Text())}
    return Fields({"matchLabels": Table(Text()), "matchExpressions": Items(Fields(requirement, "key", "operator"))})


def _namespaces(default: str, words: Iterable[str]) -> Fields:
    return Fields(
        {"from": Text(words=tuple(words), default=default), "selector": _selector()}, default={"from": default}
    )


_ALLOWED_ROUTES = Fields(
    {
        "namespaces": _namespaces("Same", ("All", "Selector", "Same")),
        "kinds": Items(Fields({"group": group(GATEWAY_API), "kind": kind()}, "kind"), 0, 8),
    },
    default={"namespaces": {"from": "Same"}},
)
_LISTENER = Fields(
    {
        "name": SECTION,
        "hostname": HOSTNAME,
        "port": PORT,
        "protocol": Text(1, 255, PROTOCOL, "a protocol"),
        "tls": Fields(
            {
                "mode": Text(words=("Terminate", "Passthrough"), default="Terminate"),
                "certificateRefs": Items(SECRET_REF, 0, 64),
                "options": OPTIONS,
            },
            rules=[_certificates],
        ),
        "allowedRoutes": _ALLOWED_ROUTES,
        "filters": Fields({"requests": filters.LISTENER}),
    },
    "name",
    "port",
    "protocol",
    rules=[_listener],
)
_LISTENERS = Items(_LISTENER, 1, 64, unique_by="name", rules=[_distinct_listeners])

GATEWAY_CLASS = Fields(
    {
        "controllerName": Text(1, 253, CONTROLLER, "a name such as example.org/controller"),
        "description": Text(0, 64),
        "parametersRef": PARAMETERS_REF,
    },
    "controllerName",
)

_VALIDATION = Fields(
    {
        "validation": Fields(
            {
                "caCertificateRefs": Items(OBJECT_REF, 1, 16, rules=[_bundles]),
                "mode": Text(words=("AllowValidOnly", "AllowInsecureFallback"), default="AllowValidOnly"),
            },
            "caCertificateRefs",
        )
    }
)
GATEWAY = Fields(
    {
        "gatewayClassName": Text(1, 253),
        "listeners": _LISTENERS,
        "addresses": Items(
            Fields(
                {
                    "type": Text(1, 253, ADDRESS_TYPE, "a valid type of address", default="IPAddress"),
                    "value": Text(0, 253),
                    "routability": Text(0, 253, _ROUTABILITY, "Cluster or a word such as example.org/name"),
                },
                rules=[_address],
            ),
            0,
            16,
            rules=[_distinct_addresses],
        ),
        "infrastructure": Fields(
            {
                "labels": Table(
                    Text(0, 63, r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", "a valid label value"), 8, [_keys]
                ),
                "annotations": Table(Text(0, 4096), 16, [_keys]),
                "parametersRef": LOCAL_REF,
            }
        ),
        "allowedListeners": Fields({"namespaces": _namespaces("None", ("All", "Selector", "Same", "None"))}),
        "defaultScope": Text(words=("All", "None")),
        "tls": Fields(
            {
                "backend": Fields({"clientCertificateRef": SECRET_REF}),
                "frontend": Fields(
                    {
                        "default": _VALIDATION,
                        "perPort": Items(
                            Fields({"port": PORT, "tls": _VALIDATION}, "port", "tls"),
                            0,
                            64,
                            unique_by="port",
                        ),
                    },
                    "default",
                ),
            }
        ),
    },
    "gatewayClassName",
    "listeners",
)

LISTENER_SET = Fields({"parentRef": PARENT_GATEWAY, "listeners": _LISTENERS}, "parentRef", "listeners")
