"""Shapes of the filters of routes."""

from collections.abc import Iterable
from typing import Any, Final

from tunnelgw.sources.directory.schema.common import (
    HEADER_NAME,
    HEADER_VALUE,
    LOCAL_REF,
    NAME,
    NAMESPACE,
    PATH,
    PORT,
    PRECISE_HOSTNAME,
    group,
    kind,
    needs_by,
    port_of_reference,
)
from tunnelgw.sources.directory.schema.shapes import Fields, Flag, Items, Number, Shape, Text

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
BACKEND_FIELDS: Final[dict[str, Shape]] = {
    "group": group(""),
    "kind": kind("Service"),
    "name": NAME,
    "namespace": NAMESPACE,
    "port": PORT,
}
_BACKEND: Final = Fields(BACKEND_FIELDS, "name", rules=[port_of_reference])


def _one_of_share(mirror: Any) -> str | None:
    return "percent and fraction must not both be set" if {"percent", "fraction"} <= mirror.keys() else None


def _fraction(fraction: Any) -> str | None:
    numerator, denominator = fraction["numerator"], fraction["denominator"]
    return f"numerator {numerator} is more than denominator {denominator}" if numerator > denominator else None


def _star_alone(values: Any) -> str | None:
    return "'*' must stand alone" if "*" in values and len(values) > 1 else None


_HEADERS = Items(Fields({"name": HEADER_NAME, "value": HEADER_VALUE}, "name", "value"), 0, 16, unique_by="name")
_HEADER_MODIFIER = Fields({"set": _HEADERS, "add": _HEADERS, "remove": Items(Text(), 0, 16, is_set=True)})
_PATH_MODIFIER = Fields(
    {
        "type": Text(words=("ReplaceFullPath", "ReplacePrefixMatch")),
        "replaceFullPath": Text(0, 1024),
        "replacePrefixMatch": Text(0, 1024),
    },
    "type",
    rules=[needs_by("type", {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"})],
)
_ORIGIN = r"\*|https?://((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:[0-9]{1,5})?"
_HEADER_NAMES = Items(HEADER_NAME, 0, 64, is_set=True)
_ALLOWED = Items(Text(), 0, 64, is_set=True)
_SHAPES: dict[str, tuple[str, Shape]] = {
    "RequestHeaderModifier": ("requestHeaderModifier", _HEADER_MODIFIER),
    "ResponseHeaderModifier": ("responseHeaderModifier", _HEADER_MODIFIER),
    "RequestMirror": (
        "requestMirror",
        Fields(
            {
                "backendRef": _BACKEND,
                "percent": Number(0, 100),
                "fraction": Fields(
                    {"numerator": Number(0), "denominator": Number(1, default=100)}, "numerator", rules=[_fraction]
                ),
            },
            "backendRef",
            rules=[_one_of_share],
        ),
    ),
    "RequestRedirect": (
        "requestRedirect",
        Fields(
            {
                "scheme": Text(words=("http", "https")),
                "hostname": PRECISE_HOSTNAME,
                "path": _PATH_MODIFIER,
                "port": PORT,
                "statusCode": Number(among=(301, 302, 303, 307, 308), default=302),
            }
        ),
    ),
    "URLRewrite": ("urlRewrite", Fields({"hostname": PRECISE_HOSTNAME, "path": _PATH_MODIFIER})),
    "CORS": (
        "cors",
        Fields(
            {
                "allowOrigins": Items(
                    Text(1, 253, _ORIGIN, "an origin such as https://example.org"),
                    0,
                    64,
                    is_set=True,
                    rules=[_star_alone],
                ),
                "allowMethods": Items(Text(words=(*METHODS, "*")), 0, 9, is_set=True, rules=[_star_alone]),
                "allowHeaders": Items(HEADER_NAME, 0, 64, is_set=True, rules=[_star_alone]),
                "exposeHeaders": _HEADER_NAMES,
                "allowCredentials": Flag(),
                "maxAge": Number(1, default=5),
            }
        ),
    ),
    "ExternalAuth": (
        "externalAuth",
        Fields(
            {
                "protocol": Text(words=("HTTP", "GRPC")),
                "backendRef": _BACKEND,
                "grpc": Fields({"allowedHeaders": _ALLOWED}),
                "http": Fields(
                    {
                        "path": Text(0, 1024, PATH, "a path"),
                        "allowedHeaders": _ALLOWED,
                        "allowedResponseHeaders": _ALLOWED,
                    }
                ),
                "forwardBody": Fields({"maxSize": Number(0)}),
            },
            "backendRef",
            "protocol",
            rules=[needs_by("protocol", {"HTTP": "http", "GRPC": "grpc"})],
        ),
    ),
    "ExtensionRef": ("extensionRef", LOCAL_REF),
}
_ONCE = (
    "RequestHeaderModifier",
    "ResponseHeaderModifier",
    "RequestRedirect",
    "URLRewrite",
    "CORS",
)


def filters(types: Iterable[str]) -> Items:
    """A list of filters of these types."""
    chosen = {each: _SHAPES[each] for each in types}
    by_type = needs_by("type", {each: field for each, (field, _) in chosen.items()})
    fields: dict[str, Shape] = {"type": Text(words=tuple(chosen))}
    shape = Fields({**fields, **dict(chosen.values())}, "type", rules=[by_type])
    return Items(shape, 0, 16, rules=[_once])


def _once(items: Any) -> str | None:
    types = [item["type"] for item in items]
    for each in _ONCE:
        if types.count(each) > 1:
            return f"filter {each} occurs more than once"
    if "RequestRedirect" in types and "URLRewrite" in types:
        return "filters RequestRedirect and URLRewrite must not be used together"
    return None


HTTP: Final = filters(_SHAPES)
LISTENER: Final = filters(("ExternalAuth", "ExtensionRef"))
GRPC: Final = filters(("RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef"))
