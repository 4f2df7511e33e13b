"""The proxy's own responses, byte by byte."""

import pytest

from proxy.backend.stream import Reason
from proxy.document import Route, Rule
from proxy.exchange.answers import error_answer, failure_answer, http_date, percent_encoded, redirect_reply, reply_to
from proxy.heads import Fields
from proxy.routing import Answer, HeaderEdits, Listener, Redirect
from proxy.routing.hosts import RouteSet
from proxy.routing.rule import RuleCompiler
from tests.proxy.exchange.sides import GRPC, asked

NOW_S = 784111777.9
DATE = (b"date", b"Sun, 06 Nov 1994 08:49:37 GMT")
ID = (b"x-request-id", b"abc-1")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
EDITS = HeaderEdits(frozenset((b"server",)), ((b"server", b"ours"),))


def test_an_error_response_has_the_cause_and_the_request_id() -> None:
    reply = reply_to(failure_answer(Reason.REFUSED, None), asked(), ID, NOW_S)

    assert reply.head.status_code == 502
    assert reply.body == b"502 bad gateway: the backend refused the connection\nrequest id: abc-1\n"
    assert reply.head.fields == [TEXT, DATE, ID, (b"content-length", b"%d" % len(reply.body))]


def test_the_error_for_too_many_backend_fields_is_not_that_for_invalid_http() -> None:
    reply = reply_to(failure_answer(Reason.FIELDS_TOO_LARGE, None), asked(), ID, NOW_S)

    text = b"502 bad gateway: the header fields of the backend's answer are too many or too large\n"
    assert (502, text + b"request id: abc-1\n") == (reply.head.status_code, reply.body)


def test_an_error_to_head_has_the_length_but_not_the_body() -> None:
    answer = failure_answer(Reason.RESET, None)
    reply = reply_to(answer, asked(b"HEAD"), ID, NOW_S)

    assert (reply.body, reply.head.fields) == (b"", reply_to(answer, asked(), ID, NOW_S).head.fields)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_text(reason: Reason) -> None:
    answer = failure_answer(reason, None)

    assert 502 <= answer.status_code <= 504
    assert answer.reason == reason.value
    assert len(answer.body) > 20


@pytest.mark.parametrize(
    ("reason", "grpc_status"), [(Reason.REFUSED, b"14"), (Reason.OVERLOAD, b"14"), (Reason.CONNECT_TIMEOUT, b"4")]
)
def test_an_error_response_to_a_grpc_call_has_its_status_in_the_head(reason: Reason, grpc_status: bytes) -> None:
    reply = reply_to(failure_answer(reason, EDITS), asked(b"POST", fields=[GRPC]), ID, NOW_S)
    fields = dict(reply.head.fields)

    assert (reply.head.status_code, reply.body) == (200, b"")
    assert (fields[b"content-type"], fields[b"grpc-status"]) == (b"application/grpc", grpc_status)
    assert fields[b"grpc-message"] == failure_answer(reason, None).body.strip() + b", request id abc-1"
    assert (fields[b"x-request-id"], fields[b"server"]) == (b"abc-1", b"ours")
    assert b"content-length" not in fields


def test_a_configured_response_is_sent_byte_for_byte() -> None:
    answer = Answer(403, "fixed", b"closed today\n", ((b"content-type", b"text/html"),), response_edits=EDITS)
    reply = reply_to(answer, asked(), ID, NOW_S)

    assert reply.body == b"closed today\n"
    assert reply.head.fields == [
        (b"content-type", b"text/html"),
        (b"server", b"ours"),
        DATE,
        (b"content-length", b"13"),
    ]


def test_a_configured_response_to_a_grpc_call_becomes_a_grpc_status() -> None:
    answer = Answer(403, "fixed", b"50% closed\n", (), grpc_status=7)
    fields = dict(reply_to(answer, asked(b"POST", fields=[GRPC]), ID, NOW_S).head.fields)

    assert (fields[b"grpc-status"], fields[b"grpc-message"]) == (b"7", b"50%25 closed")


def test_fields_set_by_a_rule_replace_our_own_instead_of_being_added() -> None:
    said = ((b"date", b"never"), (b"x-request-id", b"mine"), (b"content-type", b"a/b"))
    edits = HeaderEdits(frozenset(name for name, _ in said), said)
    fixed = Answer(403, "fixed", b"closed\n", ((b"x-request-id", b"theirs"),), response_edits=edits)
    rule = RuleCompiler().compile(Rule(), 0, "shop", Route())
    redirect = Redirect(Listener("web", "", b"http", 80, RouteSet()), rule, 301, b"https://a.example/", edits)

    for reply in (
        reply_to(fixed, asked(), ID, NOW_S),
        reply_to(failure_answer(Reason.REFUSED, edits), asked(), ID, NOW_S),
        reply_to(failure_answer(Reason.REFUSED, edits), asked(b"POST", fields=[GRPC]), ID, NOW_S),
        redirect_reply(redirect, ID, NOW_S),
    ):
        names = [name for name, _ in reply.head.fields]
        assert len(names) == len(set(names)), names
        assert dict(reply.head.fields)[b"date"] == b"never"


def test_a_rule_cannot_set_the_status_of_a_grpc_call() -> None:
    edits = HeaderEdits(frozenset(), ((b"grpc-status", b"0"), (b"grpc-message", b"fine"), (b"content-type", b"a/b")))
    reply = reply_to(failure_answer(Reason.REFUSED, edits), asked(b"POST", fields=[GRPC]), ID, NOW_S)
    fields = dict(reply.head.fields)

    assert (fields[b"grpc-status"], fields[b"content-type"]) == (b"14", b"application/grpc")


def test_an_error_response_to_a_websocket_handshake_is_http_whatever_its_content_type() -> None:
    reply = reply_to(failure_answer(Reason.REFUSED, None), asked(b"CONNECT", fields=[GRPC]), ID, NOW_S)

    assert reply.head.status_code == 502


def test_the_response_to_the_preflight_of_a_grpc_call_is_http() -> None:
    reply = reply_to(Answer(204, "preflight"), asked(b"OPTIONS", fields=[GRPC]), ID, NOW_S)

    assert (reply.head.status_code, reply.head.fields) == (204, [DATE])


@pytest.mark.parametrize("status_code", [204, 304])
def test_responses_without_a_body_have_no_content_length(status_code: int) -> None:
    reply = reply_to(Answer(status_code, "fixed", b"", ()), asked(), ID, NOW_S)

    assert (reply.body, reply.head.fields) == (b"", [DATE])


def test_a_status_code_without_a_name_has_a_body_too() -> None:
    assert reply_to(error_answer(599, "odd", "odd"), asked(), ID, NOW_S).body.startswith(b"599 error: odd\n")


def test_a_redirect_has_a_location() -> None:
    rule = RuleCompiler().compile(Rule(), 0, "shop", Route())
    redirect = Redirect(Listener("web", "", b"http", 80, RouteSet()), rule, 301, b"https://a.example/", EDITS)
    reply = redirect_reply(redirect, ID, NOW_S)

    assert (reply.head.status_code, reply.body) == (301, b"")
    assert reply.head.fields == [
        (b"location", b"https://a.example/"),
        (b"server", b"ours"),
        DATE,
        ID,
        (b"content-length", b"0"),
    ]


@pytest.mark.parametrize(
    ("message", "encoded"),
    [(b"plain ~", b"plain ~"), (b"100%", b"100%25"), (b"a\nb", b"a%0Ab"), ("ü".encode(), b"%C3%BC"), (b"\x7f", b"%7F")],
)
def test_messages_are_percent_encoded_as_in_grpc(message: bytes, encoded: bytes) -> None:
    assert percent_encoded(message) == encoded


def test_dates_have_the_form_of_http() -> None:
    assert http_date(0) == b"Thu, 01 Jan 1970 00:00:00 GMT"


def test_the_fields_of_a_response_are_a_copy() -> None:
    answer = failure_answer(Reason.OVERLOAD, None)
    fields: Fields = reply_to(answer, asked(), ID, NOW_S).head.fields
    fields.clear()

    assert len(answer.headers) == 2
