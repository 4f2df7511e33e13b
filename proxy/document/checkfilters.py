"""Checks of filters: combinations without a meaning, and header fields that only the proxy may write."""

from proxy.document.filters import BackendFilters, Cors, ExternalAuth, HeaderModifier, PathModifier, RequestMirror
from proxy.document.part import Unset
from proxy.document.problems import Findings, excerpt
from proxy.document.routes import Rule

UNTOUCHABLE = frozenset(
    ("connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)
"""Header fields that filters cannot change: they belong to one connection (RFC 9110, 7.6.1), or to message framing."""
_ERRORS = 400
"""The lowest status code of an error."""


def check_filters(rule: Rule, kind: str, at: str, findings: Findings) -> None:
    """Check the filters of a rule and of its backends."""
    filters = rule.filters
    has_one_prefix = _has_one_prefix(rule)
    _check_shared(filters, has_one_prefix, kind, f"{at}.filters", findings)
    for place, backend in enumerate(rule.backends):
        where = f"{at}.backends[{place}].filters"
        _check_shared(backend.filters, has_one_prefix, kind, where, findings)
    redirect = filters.request_redirect
    if redirect:
        _check_path(redirect.path, has_one_prefix, f"{at}.filters.requestRedirect.path", findings)
        if kind == "grpc":
            findings.add(f"{at}.filters.requestRedirect", "not for routes of kind grpc")
        if filters.url_rewrite:
            findings.add(f"{at}.filters.urlRewrite", "`requestRedirect` is given too, want one of the two")
    if filters.cors:
        _check_cors(filters.cors, f"{at}.filters.cors", findings)
    if filters.external_auth:
        _check_auth(filters.external_auth, rule, f"{at}.filters.externalAuth", findings)


def _has_one_prefix(rule: Rule) -> bool:
    """Whether it is clear which prefix ReplacePrefixMatch replaces; a rule without matches has the prefix `/`."""
    if not rule.matches:
        return True
    path = rule.matches[0].path
    return len(rule.matches) == 1 and (not path or path.type == "PathPrefix")


def _check_shared(filters: BackendFilters, has_one_prefix: bool, kind: str, at: str, findings: Findings) -> None:
    if filters.request_header_modifier:
        _check_modifier(filters.request_header_modifier, f"{at}.requestHeaderModifier", findings)
    if filters.response_header_modifier:
        _check_modifier(filters.response_header_modifier, f"{at}.responseHeaderModifier", findings)
    if filters.url_rewrite:
        _check_path(filters.url_rewrite.path, has_one_prefix, f"{at}.urlRewrite.path", findings)
        if kind == "grpc":
            findings.add(f"{at}.urlRewrite", "not for routes of kind grpc")
    for place, mirror in enumerate(filters.request_mirrors):
        _check_mirror(mirror, f"{at}.requestMirrors[{place}]", findings)


def _check_modifier(modifier: HeaderModifier, at: str, findings: Findings) -> None:
    named = [(f"{at}.set[{place}].name", field.name) for place, field in enumerate(modifier.set)]
    named += [(f"{at}.add[{place}].name", field.name) for place, field in enumerate(modifier.add)]
    named += [(f"{at}.remove[{place}]", name) for place, name in enumerate(modifier.remove)]
    for where, name in named:
        if name.lower() in UNTOUCHABLE:
            findings.add(where, f"`{name}` belongs to the connection, and only the proxy writes it")
        elif name.lower() == "host":
            findings.add(where, "`Host` is changed by `urlRewrite.hostname` only")


def _check_path(path: PathModifier | Unset, has_one_prefix: bool, at: str, findings: Findings) -> None:
    if not path:
        return
    values = {"ReplaceFullPath": path.replace_full_path, "ReplacePrefixMatch": path.replace_prefix_match}
    fields = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}
    for type_, value in values.items():
        if (type_ == path.type) != isinstance(value, str):
            wanted = "missing" if type_ == path.type else "not wanted"
            findings.add(at, f"field `{fields[type_]}` is {wanted} with `type` {path.type}")
        elif isinstance(value, str):
            _want_path(value, f"{at}.{fields[type_]}", findings)
    if path.type == "ReplacePrefixMatch" and not has_one_prefix:
        findings.add(f"{at}.type", "ReplacePrefixMatch needs a rule with exactly one match, of path type PathPrefix")


def _want_path(value: str, at: str, findings: Findings) -> None:
    if any(sign in value for sign in "?#\\\r\n \t"):
        findings.add(at, f"{excerpt(value)} is not a path: want it without `?`, `#`, `\\` and spaces")


def _check_mirror(mirror: RequestMirror, at: str, findings: Findings) -> None:
    # A percentage of 0 counts as given, so truth would not do.
    if isinstance(mirror.percent, int) and mirror.fraction:
        findings.add(f"{at}.fraction", "`percent` is given too, want one of the two")
    if mirror.fraction and mirror.fraction.numerator > mirror.fraction.denominator:
        findings.add(f"{at}.fraction.numerator", f"{mirror.fraction.numerator} is more than the denominator")


def _check_auth(auth: ExternalAuth, rule: Rule, at: str, findings: Findings) -> None:
    # Answers that the proxy gives by itself are not authorized first, so such a rule would only look protected.
    if rule.filters.request_redirect:
        findings.add(at, "the server would not be asked: `requestRedirect` answers all requests")
    answers = (rule.respond, *(backend.respond for backend in rule.backends))
    if any(answer.status_code < _ERRORS for answer in answers if answer):
        findings.add(at, "the server would not be asked: `respond` answers requests")
    if isinstance(auth.path, str):
        _want_path(auth.path, f"{at}.path", findings)
    lists = {"allowedHeaders": auth.allowed_headers, "allowedResponseHeaders": auth.allowed_response_headers}
    for field, names in lists.items():
        for place, name in enumerate(names):
            if name.lower() in UNTOUCHABLE or name.lower() == "host":
                findings.add(f"{at}.{field}[{place}]", f"`{name}` is written only by the proxy")


def _check_cors(cors: Cors, at: str, findings: Findings) -> None:
    lists = {"allowOrigins": cors.allow_origins, "allowMethods": cors.allow_methods, "allowHeaders": cors.allow_headers}
    for name, values in lists.items():
        if "*" in values and len(values) > 1:
            findings.add(f"{at}.{name}", "`*` stands for everything, so it must stand alone")
