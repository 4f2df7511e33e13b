"""What a reply means: status first, then content type, then body (pure).

Replies come from four programs: the console's front end, its web server (HTML), the Network application's classic part
(errors inside HTTP 200) and its newer APIs. Each has its own error format; `ErrorBody` is the union of them.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from dnswebhook.errors import (
    AlreadyExists,
    CredentialsRefused,
    NotFound,
    Overlaps,
    RecordError,
    StoreError,
    StoreRestarting,
    StoreUnreachable,
    excerpt,
)
from dnswebhook.stores.unifi.address import INTEGRATION_PATH
from dnswebhook.stores.unifi.transport import Reply

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

HINT_RESTARTING = "the controller may be restarting"
HINT_FLAVOUR = (
    "the path may be wrong for this controller: check UNIFI_HOST and UNIFI_FLAVOUR (os for consoles, classic for the "
    "self-hosted application), and that the Network application is recent enough"
)
SITE_PLACE = (
    "`default` for the first one; it follows /network/, /manage/ or /site/ in the address of the controller's pages"
)
HINT_SITE = f"check UNIFI_SITE, the internal name of the site ({SITE_PLACE})"
HINT_LISTED_SITE = "check UNIFI_SITE: `dnswebhook check` lists the sites that exist"
HINT_KEY = (
    "check the credentials: an API key belongs to one console, is made by an administrator in the Network "
    "application's settings, not at unifi.ui.com, and needs version 9.0 or later; a self-hosted application takes "
    "none, set UNIFI_USER and UNIFI_PASS there; dnswebhook reads them when it starts: restart it after changing "
    "them; a console that restarts refuses them for some minutes"
)
HINT_DEVICE = "a device or client of the network has this name: rename its local DNS record, or use another name"
HINT_ALIAS = "look for all rows of this name in the controller: those that are disabled count as well"


class Decoder(Protocol[T_co]):
    def decode(self, octets: bytes, /) -> T_co:
        """Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError."""


class MethodAbsent(StoreUnreachable):
    """A web server's own 404 or 405 page: nothing at this path understands the request."""


class QueryRefused(StoreUnreachable):
    """The application does not accept the query in this form."""


_MAX_EXAMINED_BYTES = 64 * 1024
# RecursionError: nested too deeply.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Meta(msgspec.Struct, frozen=True):
    rc: str = ""
    msg: str | None = ""


class _FrontEnd(msgspec.Struct, frozen=True):
    message: str | None = ""


class _Details(msgspec.Struct, frozen=True):
    invalid_fields: list[str] = []


class ErrorBody(msgspec.Struct, frozen=True):
    """All error formats in one; fields that a body does not have, or has in another form, stay empty."""

    code: int | str = ""
    message: str = ""
    details: _Details | None = None
    meta: _Meta | None = None
    error: _FrontEnd | str | None = None

    @property
    def words(self) -> str:
        """The error code, if it is a word such as `api.err.InvalidCsrf`."""
        if self.meta is not None and self.meta.msg:
            return self.meta.msg
        return self.code if isinstance(self.code, str) else ""

    def text_in(self, reply: Reply) -> str:
        """The message for a person, as it may be quoted. `reply`: the one that this is the body of."""
        inner = self.error.message if isinstance(self.error, _FrontEnd) else self.error
        text = ": ".join(part for part in (self.words, self.message or inner) if part)
        fields = ", ".join(self.details.invalid_fields) if self.details else ""
        return excerpt(reply.quote_text(f"{text} (invalid fields: {fields})" if fields else text))


_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_member_decoders = {field.name: msgspec.json.Decoder(field.type) for field in msgspec.structs.fields(ErrorBody)}


def error_body(reply: Reply) -> ErrorBody:
    """Empty if the body has none of the known formats. With the secrets in it: a password may be one of its words."""
    if len(reply.body) <= _MAX_EXAMINED_BYTES:
        try:
            members = _members_decoder.decode(reply.body)
        except _UNREADABLE:
            return ErrorBody()
        return ErrorBody(**dict(_legible(members)))
    return ErrorBody()


def _legible(members: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, Any]]:
    """Each by itself: servers write `null` for what they leave out, and one odd member must not hide the others."""
    for name in members.keys() & _member_decoders.keys():
        with suppress(*_UNREADABLE):
            yield name, _member_decoders[name].decode(members[name])


def described(reply: Reply) -> str:
    """`GET /path answered 502 text/html: <html>...`"""
    request = reply.request
    text = excerpt(reply.quotable[:4096].decode("utf-8", "replace")) or "empty body"
    content_type = reply.content_type or "no content type"
    return f"{request.method} {request.path} answered {reply.status_code} {content_type}: {text}"


def is_json(reply: Reply) -> bool:
    """Decided by the content type, or by the beginning of the body if there is none."""
    if reply.content_type:
        return reply.content_type == "application/json" or reply.content_type.endswith("+json")
    return reply.body.lstrip()[:1] in (b"{", b"[")


def is_page(reply: Reply) -> bool:
    """Whether a web server responded in place of the application, with a redirect, or a page and a success status."""
    if 300 <= reply.status_code < 400:
        return True
    return reply.is_success and reply.content_type == "text/html" and bool(reply.body.strip())


def is_from_application(reply: Reply) -> bool:
    """Whether the Network application itself responded, not a web server or the console in front of it."""
    if not is_json(reply):
        return False
    return reply.is_success or reply.status_code in (401, 403, 429) or error_body(reply).words.startswith("api.")


def failure_of(reply: Reply) -> StoreError | None:
    """None for a success; `decoded` detects a body that is not JSON."""
    status = reply.status_code
    if reply.is_success:
        return _failure_inside_success(reply)
    if 300 <= status < 400:
        return _redirect(reply)
    if status in (401, 403):
        if is_about_site(error_body(reply)):
            return _no_site(reply)
        return CredentialsRefused(f"{described(reply)}; {HINT_KEY}")
    if status >= 500:
        return server_failure(reply)
    return _by_code(reply, error_body(reply))


def server_failure(reply: Reply) -> StoreError:
    return StoreRestarting(f"{described(reply)}; {HINT_RESTARTING}")


def _redirect(reply: Reply) -> StoreError:
    try:
        target = urlsplit(reply.headers.get("Location", ""))
        host = excerpt(target.netloc.rpartition("@")[2] or "the same host", 100)
        where_to = f"{host} ({target.scheme or 'same scheme'})"
    except ValueError:
        where_to = "something that is not a URL"
    where = f"{reply.request.method} {reply.request.path}"
    return StoreUnreachable(
        f"{where} answered {reply.status_code}, a redirect to {where_to}; it is not "
        f"followed, since it would take the credentials along: set UNIFI_HOST to the final address"
    )


def _failure_inside_success(reply: Reply) -> StoreError | None:
    body = error_inside_success(reply)
    if body is None:
        return None
    if is_session_word(body.words) or body.words.endswith("NoPermission"):
        return CredentialsRefused(f"{described(reply)}; {HINT_KEY}")
    return _by_code(reply, body)


def error_inside_success(reply: Reply) -> ErrorBody | None:
    """The error in `{"meta":{"rc":"error"}}`, which arrives with status 200, its members in any order; no list and no
    row looks like that."""
    if reply.body[:1] != b"{" or b'"meta"' not in reply.body[:512]:
        return None
    body = error_body(reply)
    return body if body.meta is not None and body.meta.rc == "error" else None


def is_session_word(words: str) -> bool:
    """Whether the error code asks to log in (again)."""
    return words.rpartition(".")[2] in ("UserNotAuthenticated", "LoginRequired", "InvalidCsrf")


def _by_code(reply: Reply, body: ErrorBody) -> StoreError:
    """The two APIs' codes differ only in spelling: `api.err.StaticDnsRecordAlreadyExists`, `...-already-exists`."""
    word = body.words.replace("-", "").lower()
    request = reply.request
    said = f"{request.method} {request.path} answered {reply.status_code}: {body.text_in(reply)}"
    if is_about_site(body):
        return _no_site(reply)
    if "alreadyexists" in word:
        return AlreadyExists(said)
    if "overlap" in word:
        return Overlaps(f"{said}; {HINT_ALIAS if 'cname' in word else HINT_DEVICE}")
    concerns_record = request.method in ("POST", "PUT", "DELETE")
    if reply.status_code in (404, 405) and not is_json(reply):
        return MethodAbsent(f"{described(reply)}; {HINT_FLAVOUR}")
    if reply.status_code == 404 or "notfound" in word:
        # The console in front of the application knows no rows, and may respond with 404 to everything while it starts.
        is_row = request.method in ("PUT", "DELETE") and not isinstance(body.error, _FrontEnd)
        return (
            NotFound(said) if is_row else StoreUnreachable(f"{described(reply)}; {HINT_FLAVOUR}; {_site_hint(reply)}")
        )
    if concerns_record:
        return RecordError(said if body.text_in(reply) else described(reply))
    return QueryRefused(described(reply))


def is_about_site(body: ErrorBody) -> bool:
    """Whether this site does not exist, or not for this user: sent with 404, or with 401 as if not logged in."""
    return "site" in body.words.lower() or "site does not exist" in body.message.lower()


def _no_site(reply: Reply) -> StoreError:
    return StoreUnreachable(f"{described(reply)}; {_site_hint(reply)}")


def _site_hint(reply: Reply) -> str:
    """Where to find the site's name, since the v2 API cannot list the sites."""
    return HINT_LISTED_SITE if reply.request.path.startswith(INTEGRATION_PATH) else HINT_SITE


def decoded(reply: Reply, decoder: Decoder[T], part: bytes | None = None) -> T:
    """The decoded body of a success, or `part` of it; raises StoreUnreachable if it is HTML, empty, cut off or
    otherwise unexpected."""
    if not is_json(reply) or not reply.body.strip():
        raise StoreUnreachable(f"{described(reply)}; want JSON; {HINT_FLAVOUR}, or {HINT_RESTARTING}")
    try:
        return decoder.decode(reply.body if part is None else part)
    except _UNREADABLE as error:
        reason = excerpt(reply.quote_text(str(error)))
        raise StoreUnreachable(f"{described(reply)}; not the JSON that was wanted: {reason}") from error
