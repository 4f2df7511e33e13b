"""external-dns's JSON and the values that it represents: bytes to model, model to bytes (pure).

Tolerant on input: external-dns decodes with Go's JSON package, so keys are matched regardless of case here too (up to
0.16 it sends `Create`, since 0.17 `create`; of two keys that differ only by case, the later one wins), unknown keys are
ignored, and null is the same as absent. Stricter than Go in three points: only white space may follow the value, text
must be valid UTF-8, and every endpoint that is to be written needs its `dnsName` (users may have forgotten it in those
to be adjusted). Every error is raised as a `WireError`.

Exact on output: lists are never null, `recordTTL` is always an integer, and keys that would be empty are absent.

Fast: a body holds up to 25,000 endpoints. The usual spelling is decoded straight into structs that reject unknown keys;
only what they reject is decoded again, key by key as Go does it, and judged there.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from dnswebhook.errors import excerpt
from dnswebhook.model import Changes, Endpoint
from dnswebhook.openapi.generated import webhook

MALFORMED = "malformed JSON"
INVALID = "invalid request"


class WireError(Exception):
    """The body cannot be understood: the response is a 400."""

    def __init__(self, category: str, message: str) -> None:
        super().__init__(message)
        self.category = category


class EndpointList(msgspec.Struct, frozen=True):
    """The body of `POST /adjustendpoints`, with each endpoint still encoded."""

    is_wrapped: bool
    """True for `{"endpoints": [...]}`, false for a bare array; the response has the same shape."""
    items: tuple[msgspec.Raw, ...]

    def place(self, index: int) -> str:
        """How messages refer to the endpoint at `index`."""
        return f"endpoints[{index}]" if self.is_wrapped else f"[{index}]"


class _ExactEndpoint(webhook.ReceivedEndpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint with external-dns's own spelling of every key, and no other keys."""


class _ExactWanted(webhook.WantedEndpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As `_ExactEndpoint`, for endpoints that are to be adjusted."""


_exact_endpoint = msgspec.json.Decoder(_ExactEndpoint)
_exact_wanted = msgspec.json.Decoder(_ExactWanted)
# Created for `convert` before there are threads: msgspec crashes if one thread uses a type while another makes msgspec
# inspect it.
_learnt = msgspec.json.Decoder(webhook.ReceivedEndpoint), msgspec.json.Decoder(webhook.WantedEndpoint)
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw] | None)
_anything = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

# ValueError: invalid UTF-8. RecursionError: nested too deeply.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


# Bytes to model.


def decode_changes(body: bytes) -> Changes:
    """Decode the body of `POST /records`; raises WireError."""
    lists = _lists(body, ("create", "updateOld", "updateNew", "delete"))
    return Changes(
        create=_decode_endpoints(lists, "create"),
        update_old=_decode_endpoints(lists, "updateOld"),
        update_new=_decode_endpoints(lists, "updateNew"),
        delete=_decode_endpoints(lists, "delete"),
    )


def decode_endpoint_list(body: bytes) -> EndpointList:
    """Decode the body of `POST /adjustendpoints`, but not yet the endpoints in it; raises WireError."""
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        return EndpointList(is_wrapped=False, items=_items(body, "body"))
    lists = _lists(body, ("endpoints",))
    if "endpoints" not in lists:
        # An empty list would mean that nothing is wanted, and external-dns would delete what it owns.
        raise WireError(INVALID, "endpoints: missing, want a list")
    return EndpointList(is_wrapped=True, items=_items(lists["endpoints"], "endpoints"))


def decode_endpoint(raw: msgspec.Raw | bytes, place: str) -> Endpoint:
    """Decode one endpoint; `place` names it in messages. Raises WireError."""
    try:
        received = _exact_endpoint.decode(raw)
    except _UNREADABLE:
        return _to_model(_decode_as_go(raw, place, webhook.ReceivedEndpoint))
    return _to_model(received)


def decode_wanted(octets: bytes, place: str) -> tuple[Endpoint, bool]:
    """As `decode_endpoint`, but a missing name becomes an empty one.

    Also returns whether `octets` are spelled as in our responses, so that they can be used in one.
    """
    try:
        received = _exact_wanted.decode(octets)
    except _UNREADABLE:
        return _to_model(_decode_as_go(octets, place, webhook.WantedEndpoint)), False
    is_answer = (
        received.record_ttl is not None
        and b"null" not in octets
        and received.labels != {}
        and received.provider_specific is None
        and received.set_identifier is None
    )
    return _to_model(received), is_answer


def _lists(body: bytes, keys: Sequence[str]) -> dict[str, msgspec.Raw]:
    """The members of the object in `body` that have one of `keys`, regardless of case."""
    try:
        members = _raw_object.decode(body)
    except _UNREADABLE as error:
        _refuse(error, "body")
    wanted = {key.casefold(): key for key in keys}
    return {wanted[folded]: raw for key, raw in members.items() if (folded := key.casefold()) in wanted}


def _decode_endpoints(lists: dict[str, msgspec.Raw], key: str) -> tuple[Endpoint, ...]:
    if key not in lists:
        return ()
    # One by one: a list of 25,000 intermediate structs costs more in garbage collection than it saves in calls.
    return tuple([decode_endpoint(raw, f"{key}[{index}]") for index, raw in enumerate(_items(lists[key], key))])


def _items(body: bytes | msgspec.Raw, place: str) -> tuple[msgspec.Raw, ...]:
    try:
        return tuple(_raw_array.decode(body) or ())
    except _UNREADABLE as error:
        _refuse(error, place)


def _to_model(received: webhook.WantedEndpoint) -> Endpoint:
    return Endpoint(
        "" if received.dns_name is msgspec.UNSET else received.dns_name,
        received.record_type or "",
        tuple(received.targets or ()),
        received.record_ttl or 0,
        received.set_identifier or "",
        received.labels or {},
        tuple([(pair.name or "", pair.value or "") for pair in received.provider_specific or ()]),
    )


# Bytes to model, as Go reads them, and error messages if even that fails.

_SPELLINGS = {
    key.casefold(): key
    for struct in (webhook.ReceivedEndpoint, webhook.ReceivedProperty)
    for key in struct.__struct_encode_fields__
}


def _decode_as_go(raw: msgspec.Raw | bytes, place: str, kind: type[webhook.WantedEndpoint]) -> webhook.WantedEndpoint:
    """Decode an endpoint from JSON whose keys may be in any letter case; raises WireError."""
    value: Any = None
    try:
        value = _respelled(_anything.decode(raw))
        return msgspec.convert(value, kind)
    except _UNREADABLE as error:
        _refuse(error, place, value)


def _respelled(value: Any) -> Any:
    """`value` with external-dns's own spelling of every key of an endpoint; the keys of labels stay unchanged."""
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if not isinstance(value, dict):
        return value
    # A later key replaces an earlier one that differs only by case, as in Go.
    members = {_SPELLINGS.get(key.casefold(), key): item for key, item in value.items()}
    if "providerSpecific" in members:
        members["providerSpecific"] = _respelled(members["providerSpecific"])
    return members


_MISSING = re.compile(r"Object missing required field `(\w+)`")


def _refuse(error: Exception, place: str, value: Any = None) -> NoReturn:
    """Raise a WireError: what was seen, what was wanted, and where; `value` is what was read before `error`."""
    if not isinstance(error, msgspec.ValidationError):
        raise WireError(MALFORMED, f"{place}: {_malformed(error)}") from error
    what, _, path = str(error).partition(" - at `$")
    path = path.removesuffix("`")
    if missing := _MISSING.fullmatch(what):
        raise WireError(INVALID, f"{place}{path}.{missing[1]}: missing, want a name") from error
    wanted = what.replace(" | null", "").replace("`", "")
    seen = "" if "got" in wanted or value is None else f", got {excerpt(repr(_at(value, path)), 40)}"
    raise WireError(INVALID, f"{place}{path}: {wanted[:1].lower()}{wanted[1:]}{seen}") from error


def _malformed(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply, want a list of flat objects"
    if isinstance(error, UnicodeError) or "UTF-8" in str(error):  # msgspec raises its own from 0.23 on
        return f"invalid UTF-8: {excerpt(str(error))}"
    return excerpt(str(error).removeprefix("JSON is malformed: ").replace("Input data was", "the text is"))


def _at(value: Any, path: str) -> Any:
    """The part of `value` at a msgspec path such as `[3].recordTTL`."""
    for index, key in re.findall(r"\[(\d+)\]|\.(\w+)", path):
        value = value[int(index)] if index else value[key]
    return value


# Model to bytes.


def encode_endpoint(endpoint: Endpoint) -> bytes:
    """One element of the responses to `GET /records` and `POST /adjustendpoints`."""
    return _encoder.encode(
        webhook.Endpoint(
            dns_name=endpoint.dns_name,
            record_type=endpoint.record_type,
            targets=list(endpoint.targets),
            record_ttl=endpoint.ttl_s,
            set_identifier=endpoint.set_identifier or msgspec.UNSET,
            labels=endpoint.labels or msgspec.UNSET,
            provider_specific=[
                webhook.ProviderSpecificProperty(name=name, value=value) for name, value in endpoint.provider_specific
            ]
            or msgspec.UNSET,
        )
    )


def join_endpoints(parts: Iterable[bytes], is_wrapped: bool) -> bytes:
    """A whole response from encoded endpoints."""
    opening, closing = (b'{"endpoints":[', b"]}") if is_wrapped else (b"[", b"]")
    joined = [*parts] or [b""]
    # The brackets are added before joining: the whole is some MiB, and would be copied for each of them.
    joined[0] = opening + joined[0]
    joined[-1] += closing
    return b",".join(joined)


def encode_filter(
    include: Sequence[str] = (), exclude: Sequence[str] = (), regex_include: str = "", regex_exclude: str = ""
) -> bytes:
    """The response to `GET /`: external-dns reads the root, other clients read `domainFilter`.

    Empty keys are left out at the root: external-dns refuses to start if it sees both lists and expressions.
    """
    return _encoder.encode(
        webhook.Negotiation(
            domain_filter=webhook.DomainFilter(
                filters=list(include), exclude=list(exclude), regex_filter=regex_include, regex_exclude=regex_exclude
            ),
            include=list(include) or msgspec.UNSET,
            exclude=list(exclude) or msgspec.UNSET,
            regex_include=regex_include or msgspec.UNSET,
            regex_exclude=regex_exclude or msgspec.UNSET,
        )
    )


def encode_error(category: str, message: str) -> bytes:
    """The body of every error response."""
    return _encoder.encode(webhook.Error(error=_encodable(category), message=_encodable(message)))


def _encodable(text: str) -> str:
    """A message may quote a request line that was not valid UTF-8; invalid characters become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
