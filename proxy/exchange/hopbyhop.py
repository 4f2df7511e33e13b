"""Remove fields that belong to one connection, in both directions (RFC 9110, 7.6.1; RFC 9113, 8.2.2).

The verdict on a field depends only on its name, which is looked up once: keep it, drop it, or look closer.
Pure; called by the loop's thread.
"""

from collections.abc import Mapping
from typing import Final

from proxy.h1.grammar import options_of, permitted_trailers
from proxy.heads import MAX_KEPT_NAME_BYTES, Field, Fields, ResponseHead, plain_name

# Verdicts. KEEP is false, so that the usual case is one test. Those from LOOK_CLOSER on are special.
KEEP, DROP, LOOK_CLOSER = range(3)
CONNECTION, TE, COOKIE = range(LOOK_CLOSER, LOOK_CLOSER + 3)
FIRST_FREE: Final = COOKIE + 1
"""Callers' own verdicts begin here."""

Special = list[tuple[int, Field]]

_ALWAYS: Final[dict[bytes, int]] = {
    b"connection": CONNECTION,
    b"http2-settings": DROP,
    b"keep-alive": DROP,
    b"proxy-authenticate": DROP,
    b"proxy-authentication-info": DROP,
    b"proxy-authorization": DROP,
    b"proxy-connection": DROP,
    b"transfer-encoding": DROP,
    b"upgrade": DROP,
}
"""The fields of proxy authentication are for the next hop, which is us.

RFC 9110, 7.6.1 no longer asks for their removal, and proxies differ: Go's and Apache's remove the challenge of a
backend's 407, nginx and HAProxy pass it. To clients we are the origin, not their proxy, and proxies that do not
cooperate keep credentials to themselves (11.7.1, 11.7.2). So no client could answer the challenge through us; it would
only seem to come from the client's own proxy, as a request for the credentials that are meant for that one.
Proxy-Status stays, since it tells of the whole chain (RFC 9209, 2).
"""
_LENGTH: Final = b"content-length"
_USUAL_OPTIONS: Final = frozenset((b"keep-alive", b"Keep-Alive", b"close", b"Close", b"upgrade", b"Upgrade"))
_BODILESS: Final = frozenset({101, 204})
_MAX_NAMES: Final = 2048
_TE_TRAILERS: Final[Field] = (b"te", b"trailers")


class Verdicts:
    """Verdicts by lower-case name. Those on new names are kept, up to a limit, since most names repeat."""

    __slots__ = ("_dropped_prefixes", "_fixed", "_usual_prefixes", "known")

    def __init__(
        self,
        special: Mapping[bytes, int],
        dropped_prefixes: tuple[bytes, ...] = (),
        usual_prefixes: tuple[bytes, ...] = (),
    ) -> None:
        """`special` has verdicts in addition to those that hold for every message. Names that begin with one of
        `dropped_prefixes` are dropped. So are unusual spellings (`plain_name`) of special names, and of names that
        begin with one of `usual_prefixes`.
        """
        self._fixed = {**_ALWAYS, **special}
        self._dropped_prefixes = dropped_prefixes
        self._usual_prefixes = usual_prefixes
        self.known: dict[bytes, int] = dict(self._fixed)

    def judge(self, name: bytes) -> int:
        """The verdict on a name that is not known yet."""
        plain = plain_name(name)
        is_dropped = plain.startswith(self._dropped_prefixes) or (plain != name and self._has_usual_spelling(plain))
        verdict = DROP if is_dropped else KEEP
        if len(name) <= MAX_KEPT_NAME_BYTES:
            known = self.known
            if len(known) >= _MAX_NAMES:
                known.clear()
                known.update(self._fixed)
            known[name] = verdict
        return verdict

    def _has_usual_spelling(self, plain: bytes) -> bool:
        return plain in self._fixed or plain == _LENGTH or plain.startswith(self._usual_prefixes)


# Some servers send Host back, which is harmless but has no meaning, and no codec sends it.
_RESPONSE = Verdicts({b"te": DROP, b"host": DROP})


def sort_out(fields: Fields, verdicts: Verdicts) -> tuple[Fields, Special]:
    """The fields to keep, in a new list, and those to look closer at."""
    kept: Fields = []
    special: Special = []
    known = verdicts.known
    for field in fields:
        try:
            verdict = known[field[0]]
        except KeyError:
            verdict = verdicts.judge(field[0])
        if not verdict:
            kept.append(field)
        elif verdict != DROP:
            special.append((verdict, field))
    return kept, special


def settle(kept: Fields, special: Special) -> tuple[Fields, Special]:
    """Apply the verdicts of this module; returns what is kept then, and what is left to the caller."""
    rest: Special = []
    cookies: list[Field] = []
    takes_trailers = drops_cookies = False
    for verdict, field in special:
        if verdict == CONNECTION:
            if field[1] not in _USUAL_OPTIONS:
                kept = _without_named(kept, field[1])
                drops_cookies = drops_cookies or b"cookie" in options_of([field[1]])
        elif verdict == TE:
            takes_trailers = takes_trailers or b"trailers" in options_of([field[1]])
        elif verdict == COOKIE:
            cookies.append(field)
        else:
            rest.append((verdict, field))
    if takes_trailers:
        # A new field for the next hop: the client's was for us, as its Connection field says (RFC 9110, 10.1.4).
        kept.append(_TE_TRAILERS)
    if cookies and not drops_cookies:
        # HTTP/2 may split a cookie field, HTTP/1.1 must not (RFC 9113, 8.2.3).
        pieces = (value for _, value in cookies if value)
        kept.append(cookies[0] if len(cookies) == 1 else (b"cookie", b"; ".join(pieces)))
    return kept, rest


def response_fields(fields: Fields) -> Fields:
    """The fields of a response head that are for the client, in a new list."""
    kept, special = sort_out(fields, _RESPONSE)
    for _, (_, value) in special:
        kept = _without_named(kept, value)
    return kept


def final_fields(head: ResponseHead) -> Fields:
    """The same for a final head or a 101. Those of 101 and 204 lose their content-length too (RFC 9110, 8.6), which
    curl refuses over HTTP/2.
    """
    return interim_fields(head.fields) if head.status_code in _BODILESS else response_fields(head.fields)


def interim_fields(fields: Fields) -> Fields:
    """The same for a 1xx head, without content-length, since it has no body (RFC 9110, 8.6)."""
    return [field for field in response_fields(fields) if field[0] != _LENGTH]


def trailer_fields(fields: Fields) -> Fields:
    """The trailers that may be passed on, in either direction (RFC 9110, 6.5.1)."""
    return permitted_trailers(fields)


def _without_named(fields: Fields, options: bytes) -> Fields:
    """`fields` without those that a Connection field names."""
    if options in _USUAL_OPTIONS:
        return fields
    named = options_of([options])
    return [field for field in fields if field[0] not in named]
