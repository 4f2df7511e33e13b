"""Which JSON a client wants, and which media types are clearly not JSON (pure).

There is one version of the webhook's media type and no real negotiation: external-dns sends it in `Accept` of every
GET, and sends no `Accept` at all with `POST /records`. So only types that are clearly something else are refused; an
absent, broad, odd or malformed header is treated as JSON, since external-dns exits on a 4xx.
"""

from collections.abc import Iterator

MEDIA_TYPE = "application/external.dns.webhook+json;version=1"
"""external-dns compares this byte for byte: no space, no charset."""
PLAIN_MEDIA_TYPE = "application/json"

_WEBHOOK = "application/external.dns.webhook+json"
_FOREIGN_FAMILIES = frozenset({"text", "image", "audio", "video", "font", "model", "multipart", "message"})
_FOREIGN = frozenset({"application/x-www-form-urlencoded", "application/xml", "application/pdf", "application/zip"})


def prefers_bare(accept: str | None) -> bool:
    """True if `Accept` names the webhook media type and does not rank plain JSON above it."""
    weights = dict(_ranges(accept or ""))
    weight = weights.get(_WEBHOOK, 0.0)
    return weight > 0 and weight >= weights.get(PLAIN_MEDIA_TYPE, 0.0)


def is_acceptable(accept: str | None) -> bool:
    """False only if every type named in `Accept` is clearly not JSON."""
    ranges = [media_type for media_type, weight in _ranges(accept or "") if weight > 0]
    return not ranges or not all(map(_is_foreign, ranges))


def is_supported_content_type(content_type: str | None) -> bool:
    """False only if the body is declared as something that is clearly not JSON."""
    return not _is_foreign(_bare_type(content_type or ""))


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    """Each media range of an `Accept` header without its parameters, and its weight (RFC 9110, 12.5.1)."""
    for item in accept.split(","):
        media_type, *parameters = item.split(";")
        if media_type.strip():
            yield _bare_type(media_type), _weight(parameters)


def _bare_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0


def _is_foreign(media_type: str) -> bool:
    family, _, subtype = media_type.partition("/")
    if subtype == "json" or subtype.endswith("+json"):
        return False
    return family in _FOREIGN_FAMILIES or media_type in _FOREIGN or subtype.endswith("+xml")
