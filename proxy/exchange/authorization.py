"""External authorization by the server that a rule names (Gateway API, HTTPRouteFilter.externalAuth).

The question has the request's method, host, path and query, the fields that the rule allows, and no body. The fields
are those that a backend would get, not those that the client sent. Whatever goes wrong, nothing is forwarded.
"""

from typing import Final

import msgspec

from proxy.heads import Field, Fields, RequestHead, plain_name
from proxy.routing import Backend, Forward, HeaderEdits, Inquiry

_NO_BODY: Final[Field] = (b"content-length", b"0")
_COOKIE: Final = b"set-cookie"
_ABOUT_ITSELF: Final = frozenset(
    (
        b"accept-ranges",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-location",
        b"content-type",
        b"date",
        b"etag",
        b"last-modified",
        b"server",
        _COOKIE,
        b"trailer",
        b"vary",
        b"www-authenticate",
    )
)
"""Fields about the response itself, or meant for the client, which are of no use to a backend."""


class Question(msgspec.Struct, frozen=True):
    server: Backend
    head: RequestHead


def question(inquiry: Inquiry, asked: RequestHead, fields: Fields) -> Question:
    """`asked` is the client's request; `fields` those that a backend would get, before the rule's changes."""
    names = inquiry.plan.request_names
    method = b"GET" if asked.method == b"CONNECT" else asked.method
    kept = [field for field in fields if field[0] in names]
    kept.append(_NO_BODY)
    server = inquiry.plan.backend
    return Question(
        server,
        RequestHead(method, server.scheme, asked.authority, inquiry.path, kept, never_indexed=asked.never_indexed),
    )


def with_consent(
    inquiry: Inquiry, edits: HeaderEdits | None, head: RequestHead, consent: Fields
) -> tuple[RequestHead, frozenset[bytes]]:
    """The request head to forward: with the fields of the server's 200, then changed by the rule's `edits`.

    Also returns the names, spelled with dashes, that the client must not use, not even in trailers.
    """
    names = inquiry.plan.response_names
    if names is None:
        given = [field for field in consent if field[0] not in _ABOUT_ITSELF]
        names = frozenset(name for name, _ in given)
    else:
        given = [field for field in consent if field[0] in names]
    withheld = frozenset(map(plain_name, names))
    fields = without(head.fields, withheld) + given
    if edits is not None:
        fields = edits.apply(fields)
    leaving = RequestHead(
        head.method, head.scheme, head.authority, head.path, fields, head.protocol, head.never_indexed
    )
    return leaving, withheld


def with_cookies(decision: Forward, consent: Fields) -> Forward:
    """The decision with one addition: the client gets the cookies of the server's 200, whoever answers the request.

    They may renew a session: a server that has replaced the session's token would not recognise the client again.
    """
    edits = decision.response_edits
    if edits is not None and _COOKIE in edits.drop:
        return decision
    cookies = HeaderEdits(append=tuple(field for field in consent if field[0] == _COOKIE))
    if not cookies.append:
        return decision
    return msgspec.structs.replace(decision, response_edits=cookies if edits is None else edits.then(cookies))


def without(fields: Fields, names: frozenset[bytes]) -> Fields:
    """`fields` without those named in `names`, however a client spells them; `names` are spelled with dashes."""
    return [field for field in fields if plain_name(field[0]) not in names]
