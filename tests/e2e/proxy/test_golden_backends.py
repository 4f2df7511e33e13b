"""What Gateway API says of backends, through the running proxy: shares, retries, mirrors, sessions, timeouts."""

import contextlib
import math
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.proxy.doors import through_both_doors
from tests.support.asking import Answer, ask, connect
from tests.support.gateway import Gateway, route_to
from tests.support.ports import ReservedPort
from tests.support.recordingbackend import Received, RecordingBackend, Reply, echo

pytestmark = through_both_doors


@pytest.fixture
def pair() -> Iterator[tuple[RecordingBackend, RecordingBackend]]:
    with RecordingBackend("first") as first, RecordingBackend("second") as second:
        yield first, second


def ask_often(gateway: Gateway, count: int, **options: Any) -> list[Answer]:
    """On one connection."""
    connection = connect(gateway.clear[1])
    with contextlib.closing(connection):
        return [ask(0, connection=connection, **options) for _ in range(count)]


def is_plausible(seen: int, count: int, share: float) -> bool:
    """Within five standard deviations: wrong once in a million runs."""
    return abs(seen - count * share) <= spread(count, share)


def spread(count: int, share: float) -> float:
    return 5 * math.sqrt(count * share * (1 - share))


# -- shares ----------------------------------------------------------------------------------------------------------


def test_requests_are_shared_by_weight_and_invalid_references_keep_their_share(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    """The example of the semantics: 3 of 4 to v1, 1 of 4 answered 500."""
    invalid = {"weight": 1, "respond": {"statusCode": 500}}
    gateway.serve(backends_route({"address": pair[0].address, "weight": 3}, invalid))

    codes = Counter(answer.status_code for answer in ask_often(gateway, 625))

    assert {200, 500} == codes.keys()
    assert is_plausible(codes[500], 625, 0.25)


def test_a_backend_without_addresses_answers_503_for_its_share(gateway: Gateway) -> None:
    invalid = {"weight": 1, "respond": {"statusCode": 500}}
    gateway.serve(backends_route({"backend": "empty", "weight": 3}, invalid), backends=[{"name": "empty"}])

    codes = Counter(answer.status_code for answer in ask_often(gateway, 625))

    assert {503, 500} == codes.keys()
    assert is_plausible(codes[500], 625, 0.25)


def test_a_backend_of_weight_zero_gets_no_requests(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    first, second = pair
    gateway.serve(backends_route({"address": first.address, "weight": 0}, {"address": second.address}))

    assert {"second"} == {answer.seen.backend for answer in ask_often(gateway, 50)}


def test_a_rule_without_backends_is_answered_500(gateway: Gateway) -> None:
    gateway.serve(backends_route())

    assert 500 == ask(gateway.clear[1]).status_code


def test_addresses_of_one_backend_all_get_requests(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    gateway.serve(route_to("", addresses=[backend.address for backend in pair]))

    assert {"first", "second"} == {answer.seen.backend for answer in ask_often(gateway, 20)}


def backends_route(*backends: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "r", "rules": [{"backends": list(backends), **fields}]}


# -- retries ---------------------------------------------------------------------------------------------------------

RETRIES = [
    # attempts, codes, what the backend answers -> what the client gets, how often the backend is asked
    (3, [500], [500, 500, 200], 200, 3),
    (3, [500], [500, 500, 500, 500, 200], 500, 4),
    (3, [500], [503, 200], 503, 1),
    (1, [502, 503], [503, 502, 200], 502, 2),
    (1, [502, 503], [503, 200], 200, 2),
    (0, [500], [500, 200], 500, 1),
    (5, [429], [429, 429, 429, 404], 404, 4),
]


@pytest.mark.parametrize("body", [None, b"x" * 60_000])
@pytest.mark.parametrize(("attempts", "codes", "answers", "expected", "asked"), RETRIES)
def test_listed_status_codes_are_retried_up_to_the_number_of_attempts(
    gateway: Gateway,
    backend: RecordingBackend,
    attempts: int,
    codes: list[int],
    answers: list[int],
    expected: int,
    asked: int,
    body: bytes | None,
) -> None:
    left = iter(answers)
    backend.respond = lambda _: Reply(status_code=next(left))
    gateway.serve(route_to(backend.address, retry={"attempts": attempts, "codes": codes, "backoff": "1ms"}))

    answer = ask(gateway.clear[1], method="POST" if body else "GET", body=body)

    assert (expected, asked) == (answer.status_code, len(backend.received))
    assert {body or b""} == {received.body for received in backend.received}


def test_a_body_beyond_the_limit_is_not_retried(gateway: Gateway, backend: RecordingBackend) -> None:
    backend.respond = lambda _: Reply(status_code=500)
    retry = {"attempts": 3, "codes": [500], "backoff": "1ms", "maxBodyBytes": 1000}
    gateway.serve(route_to(backend.address, retry=retry))

    assert 500 == ask(gateway.clear[1], method="PUT", body=b"x" * 5000).status_code
    assert [5000] == [len(received.body) for received in backend.received]


def test_the_requests_timeout_covers_all_retries(gateway: Gateway, backend: RecordingBackend) -> None:
    """Where no time is left for another attempt, the last response is the answer."""
    backend.respond = lambda _: Reply(status_code=500)
    retry = {"attempts": 100, "codes": [500], "backoff": "250ms"}
    # Long enough for a second attempt even if the machine stalls for a second.
    gateway.serve(route_to(backend.address, retry=retry, timeouts={"request": "2s"}))

    assert ask(gateway.clear[1]).status_code in (500, 504)
    assert 1 < len(backend.received) < 10


# -- mirrors ---------------------------------------------------------------------------------------------------------


def test_mirrors_get_the_request_as_forwarded_and_do_not_affect_the_response(
    gateway: Gateway, backend: RecordingBackend, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    for mirror in pair:
        mirror.respond = lambda _: Reply(status_code=500, headers=(("X-Mirror", "1"),), body=b"of a mirror")
    filters = {
        "requestMirrors": [{"backend": {"address": mirror.address}} for mirror in pair],
        "urlRewrite": {"hostname": "inner.example", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}},
        "requestHeaderModifier": {"set": [{"name": "X-Set", "value": "1"}]},
    }
    gateway.serve(route_to(backend.address, filters=filters))

    answer = ask(gateway.clear[1], "/old?q=1", method="POST", body=b"hello")

    assert "backend" == answer.seen.backend
    assert answer.value("x-mirror") is None
    for mirror in pair:
        (copied,) = mirror.wait_for_requests(1)
        assert ("POST", "/new?q=1", b"hello") == (copied.method, copied.target, copied.body)
        assert ("inner.example", "1") == (copied.value("host"), copied.value("x-set"))


SHARES = [({"percent": 20}, 0.2), ({"fraction": {"numerator": 25, "denominator": 50}}, 0.5), ({"percent": 35}, 0.35)]


@pytest.mark.parametrize(("share", "expected"), [*SHARES, ({"percent": 0}, 0.0), ({"percent": 100}, 1.0), ({}, 1.0)])
def test_mirrors_get_their_share(
    gateway: Gateway,
    pair: tuple[RecordingBackend, RecordingBackend],
    share: dict[str, Any],
    expected: float,
) -> None:
    first, mirror = pair
    mirrors = [{"backend": {"address": mirror.address}, **share}]
    gateway.serve(route_to(first.address, filters={"requestMirrors": mirrors}))

    answers = ask_often(gateway, 469)
    if expected:
        mirror.wait_for_requests(math.ceil(469 * expected - spread(469, expected)))

    assert {"first"} == {answer.seen.backend for answer in answers}
    assert is_plausible(len(mirror.received), 469, expected)


def test_a_mirror_that_hangs_or_is_down_delays_no_response(gateway: Gateway, backend: RecordingBackend) -> None:
    over = threading.Event()

    def hang(received: Received) -> Reply:
        over.wait(20)
        return echo(received)

    with RecordingBackend("hanging", respond=hang) as hanging, ReservedPort() as nobody:
        mirrors = [{"backend": {"address": address}} for address in (hanging.address, nobody.address)]
        gateway.serve(route_to(backend.address, filters={"requestMirrors": mirrors}))

        assert [200] * 20 == [answer.status_code for answer in ask_often(gateway, 20)]
        over.set()


# -- sessions --------------------------------------------------------------------------------------------------------


def test_a_cookie_keeps_its_client_at_one_address(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    addresses = [backend.address for backend in pair]
    gateway.serve(route_to("", addresses=addresses, sessionPersistence={"sessionName": "sid"}))

    seen = set()
    for _ in range(10):
        first = ask(gateway.clear[1])
        cookie = first.value("set-cookie")
        assert cookie is not None
        assert cookie.startswith("sid=")
        assert {"Path=/", "HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))
        kept = ask_often(gateway, 5, headers={"Cookie": f"other=1; {cookie.split(';')[0]}"})
        assert {first.seen.backend} == {answer.seen.backend for answer in kept}
        seen.add(first.seen.backend)
    assert {"first", "second"} == seen


def test_a_session_cookie_stays_valid_when_other_addresses_change(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    addresses = [backend.address for backend in pair]
    sticky: dict[str, Any] = {"sessionPersistence": {"sessionName": "sid"}}
    gateway.serve(route_to("", addresses=addresses, **sticky))
    first = ask(gateway.clear[1])
    cookie = first.value("set-cookie")
    assert cookie is not None

    with ReservedPort() as newcomer:
        gateway.serve(route_to("", addresses=[newcomer.address, *reversed(addresses)], **sticky))
        kept = ask_often(gateway, 10, headers={"Cookie": cookie.split(";")[0]})

    assert {first.seen.backend} == {answer.seen.backend for answer in kept}


def test_a_header_keeps_its_client_at_one_backend_of_several(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    backends = [{"address": backend.address} for backend in pair]
    gateway.serve(backends_route(*backends, sessionPersistence={"type": "Header", "sessionName": "X-Session"}))

    first = ask(gateway.clear[1])
    token = first.value("x-session")

    assert token
    kept = ask_often(gateway, 10, headers={"X-Session": token})
    assert {first.seen.backend} == {answer.seen.backend for answer in kept}


def test_a_session_survives_new_documents_and_ends_with_its_backend(
    gateway: Gateway, pair: tuple[RecordingBackend, RecordingBackend]
) -> None:
    by_name = {backend.name: backend.address for backend in pair}
    policy = {"sessionPersistence": {"sessionName": "sid"}}
    gateway.serve(backends_route(*({"address": address} for address in by_name.values()), **policy))
    first = ask(gateway.clear[1])
    cookie = {"Cookie": str(first.value("set-cookie")).split(";")[0]}

    drained = [{"address": address, "weight": int(name != first.seen.backend)} for name, address in by_name.items()]
    gateway.serve(backends_route(*drained, **policy))
    assert {first.seen.backend} == {answer.seen.backend for answer in ask_often(gateway, 5, headers=cookie)}

    del by_name[first.seen.backend]
    gateway.serve(backends_route(*({"address": address} for address in by_name.values()), **policy))
    after = ask(gateway.clear[1], headers=cookie)
    assert first.seen.backend != after.seen.backend
    assert after.value("set-cookie")


def test_a_permanent_cookie_has_max_age_and_a_forged_one_is_ignored(
    gateway: Gateway, backend: RecordingBackend
) -> None:
    policy = {"absoluteTimeout": "1h", "lifetimeType": "Permanent"}
    gateway.serve(route_to(backend.address, sessionPersistence=policy))

    answer = ask(gateway.clear[1], headers={"Cookie": "tunnelgw-session=" + "A" * 32})

    assert {"Max-Age=3599", "Max-Age=3600"} & set(str(answer.value("set-cookie")).split("; "))
