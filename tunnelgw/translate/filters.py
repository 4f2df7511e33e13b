"""Translates filters of routes into filters of the document.

In Gateway API they are a list, in the document fields that take effect in a fixed order, so most types of filter may
occur only once. An unknown filter is never skipped: requests that should pass it are answered 500, because the filter
may have been meant to keep them out.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from proxy import document
from tunnelgw.model.conditions import Reason
from tunnelgw.model.kinds import Kind
from tunnelgw.model.part import Part
from tunnelgw.model.routes import BackendObjectRef, ExternalAuth, Filter, RequestMirror
from tunnelgw.translate.parts import carry, excerpt
from tunnelgw.translate.remarks import Remarks, unresolved

NameBackend: TypeAlias = Callable[[BackendObjectRef, str], str | None]
"""The document's name of a backend, for a reference and its place in the rule; None: the reference leads nowhere."""

_PARTS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "RequestHeaderModifier": ("request_header_modifier", document.HeaderModifier),
    "ResponseHeaderModifier": ("response_header_modifier", document.HeaderModifier),
    "RequestRedirect": ("request_redirect", document.RequestRedirect),
    "URLRewrite": ("url_rewrite", document.UrlRewrite),
    "CORS": ("cors", document.Cors),
}
"""Filters that may occur once: the field, which the API and the document name alike, and the document's struct."""

_EVERYWHERE = frozenset(("RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef"))
_KNOWN = {
    # by kind of route: on rules, on backendRefs
    Kind.HTTP_ROUTE: (
        _EVERYWHERE | {"RequestRedirect", "URLRewrite", "CORS", "ExternalAuth"},
        _EVERYWHERE | {"URLRewrite"},
    ),
    Kind.GRPC_ROUTE: (_EVERYWHERE, _EVERYWHERE),
}


_NO_FILTERS, _NO_BACKEND_FILTERS = document.Rule().filters, document.BackendRef().filters
"""The default objects themselves, which the encoder leaves out."""


class Translated(msgspec.Struct, frozen=True):
    """The filters of a rule, or of one of its backends."""

    filters: document.Filters
    is_closed: bool
    """Whether one of them cannot be applied, so that nothing may be forwarded."""

    @property
    def of_backend(self) -> document.BackendFilters:
        """Without the filters that only a rule can have."""
        own = self.filters
        if own is _NO_FILTERS:
            return _NO_BACKEND_FILTERS
        return document.BackendFilters(
            own.request_header_modifier, own.response_header_modifier, own.url_rewrite, own.request_mirrors
        )


class FilterReader:
    """Reads a list of filters, of a rule or of one of its backendRefs."""

    def __init__(self, kind: Kind, name_backend: NameBackend, remarks: Remarks) -> None:
        self._kind = kind
        self._name_backend = name_backend
        self._remarks = remarks

    def of_rule(self, filters: tuple[Filter, ...]) -> Translated:
        return self._read(filters, _KNOWN[self._kind][0], "filters")

    def of_backend(self, filters: tuple[Filter, ...], at: str) -> Translated:
        return self._read(filters, _KNOWN[self._kind][1], f"{at}.filters")

    def _read(self, filters: tuple[Filter, ...], known: frozenset[str], at: str) -> Translated:
        if not filters:
            return Translated(_NO_FILTERS, is_closed=False)
        parts: dict[str, Any] = {}
        mirrors: list[document.RequestMirror] = []
        is_closed = False
        for place, entry in enumerate(filters):
            where = f"{at}[{place}]"
            if entry.type not in known:
                wanted = ", ".join(sorted(known))
                self._remarks.unsupported.append(
                    f"{where}.type: {excerpt(entry.type)} is not served here, want {wanted}"
                )
            elif entry.type == "ExtensionRef":
                is_closed = True
                self._refuse_extension(entry, where)
            elif entry.type == "ExternalAuth":
                auth = self._external_auth(entry.external_auth, where, is_second="external_auth" in parts)
                is_closed = is_closed or auth is None
                parts["external_auth"] = auth or document.UNSET
            elif entry.type == "RequestMirror":
                mirrors += self._mirror(entry.request_mirror, where)
            else:
                self._single(entry, where, parts)
        if self._kind is Kind.HTTP_ROUTE:
            _rewrite_host(parts)
        return Translated(document.Filters(request_mirrors=tuple(mirrors), **parts), is_closed)

    def _single(self, entry: Filter, at: str, parts: dict[str, Any]) -> None:
        field, struct = _PARTS[entry.type]
        content: Part | None = getattr(entry, field)
        if content is None:
            self._remarks.unsupported.append(f"{at}: type is {entry.type}, but its field is missing")
        elif field in parts:
            self._remarks.incompatible.append(f"{at}: a second {entry.type}, want only one")
        else:
            parts[field] = carry(content, struct, f"{at}.{_spelled(field)}", self._remarks) or document.UNSET

    def _mirror(self, mirror: RequestMirror | None, at: str) -> list[document.RequestMirror]:
        """Empty if there is no backend to mirror to; the requests themselves are still forwarded."""
        if mirror is None:
            self._remarks.unsupported.append(f"{at}: type is RequestMirror, but its field is missing")
            return []
        name = self._name_backend(mirror.backend_ref, f"{at}.requestMirror.backendRef")
        if name is None:
            return []
        fraction: document.Fraction | document.Unset | None = document.UNSET
        if mirror.fraction:
            fraction = carry(mirror.fraction, document.Fraction, f"{at}.requestMirror.fraction", self._remarks)
        return [
            document.RequestMirror(
                document.BackendTarget(backend=name),
                document.UNSET if mirror.percent is None else mirror.percent,
                fraction or document.UNSET,
            )
        ]

    def _external_auth(self, auth: ExternalAuth | None, at: str, *, is_second: bool) -> document.ExternalAuth | None:
        """None, with remarks, if the authorization service cannot be called as the filter requires."""
        if auth is None:
            self._remarks.unsupported.append(f"{at}: type is ExternalAuth, but its field is missing")
            return None
        at = f"{at}.externalAuth"
        if is_second:
            self._remarks.incompatible.append(f"{at}: a second ExternalAuth, want only one")
        if auth.protocol != "HTTP":
            self._remarks.unsupported.append(f"{at}.protocol: {excerpt(auth.protocol)} is not served, want HTTP")
        if auth.forward_body.max_size:
            self._remarks.unsupported.append(f"{at}.forwardBody.maxSize: bodies are not forwarded, want 0")
        name = self._name_backend(auth.backend_ref, f"{at}.backendRef")
        if name is None:
            return None
        return document.ExternalAuth(
            document.BackendTarget(backend=name),
            f"/{auth.http.path.lstrip('/')}" if auth.http.path else document.UNSET,
            auth.http.allowed_headers,
            auth.http.allowed_response_headers,
        )

    def _refuse_extension(self, entry: Filter, at: str) -> None:
        ref = entry.extension_ref
        named = f"{ref.group}/{ref.kind}" if ref else "nothing"
        message = f"{named} is not a filter that is known here; requests that should pass it are answered 500"
        self._remarks.refer(f"{at}.extensionRef", unresolved(Reason.INVALID_KIND, message))


def _rewrite_host(parts: dict[str, Any]) -> None:
    """Turn a filter that sets the `Host` header, as ingress2gateway does for `upstream-vhost`, into a hostname
    rewrite."""
    modifier: document.HeaderModifier | document.Unset = parts.get("request_header_modifier", document.UNSET)
    rewrite: document.UrlRewrite = parts.get("url_rewrite") or document.UrlRewrite()
    if not modifier or rewrite.hostname or "request_redirect" in parts:
        return
    hosts = [field.value for field in modifier.set if field.name.lower() == "host"]
    if not hosts:
        return
    try:
        hostname = msgspec.convert({"hostname": hosts[0]}, document.UrlRewrite).hostname
    except msgspec.ValidationError:
        return
    left = tuple(field for field in modifier.set if field.name.lower() != "host")
    parts["url_rewrite"] = msgspec.structs.replace(rewrite, hostname=hostname)
    parts["request_header_modifier"] = msgspec.structs.replace(modifier, set=left)


def _spelled(field: str) -> str:
    """A field's name in camelCase."""
    first, *rest = field.split("_")
    return first + "".join(map(str.capitalize, rest))
