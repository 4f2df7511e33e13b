"""The model sends what external-dns sends, and judges each answer as external-dns does."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pytest

from dnswebhook.model import Changes, Endpoint
from tests.support.client_json import Generation
from tests.support.client_model import MEDIA_TYPE, ClientModel, HardError, SoftError
from tests.support.client_plan import Filter
from tests.support.client_registry import TxtRegistry

EXAMPLE = Endpoint("x.example.com", "A", ("192.0.2.1",))
ACCEPT = f"Accept: {MEDIA_TYPE}"
CONTENT = f"Content-Type: {MEDIA_TYPE}"

Call = Callable[[ClientModel], None]


class ScriptedServer:
    """Answers consecutive connections with the given bytes, and records the requests."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="scripted server", daemon=True)
        self.requests: list[bytes] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._socket.close()
        self._thread.join(5)

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._socket.accept()
            with connection, connection.makefile("rb") as reader:
                head = b"".join(iter(reader.readline, b"\r\n"))
                length = next((int(line[15:]) for line in head.splitlines() if line.startswith(b"Content-Length:")), 0)
                self.requests.append(head + b"\r\n" + reader.read(length))
                connection.sendall(answer)


def answer(status: str, body: bytes = b"", content_type: str = MEDIA_TYPE) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class TestRequests:
    def test_each_request_has_the_bytes_of_the_real_client(self) -> None:
        replies = [answer("200 OK", b"{}"), *[answer("200 OK", b"[]")] * 2, answer("204 No Content")]
        with ScriptedServer(*replies) as server:
            client = ClientModel(f"http://{server.address}/prefix")
            client.negotiate()
            client.list_records()
            client.adjust_endpoints([EXAMPLE])
            client.apply_changes(Changes(create=(EXAMPLE,)))
            size = "Content-Length: "
            host, agent = f"Host: {server.address}", "User-Agent: Go-http-client/1.1"
            endpoint = '{"dnsName":"x.example.com","targets":["192.0.2.1"],"recordType":"A"}'
            adjusted, applied = f"[{endpoint}]\n", f'{{"create":[{endpoint}]}}\n'
            lines = [
                ["GET /prefix HTTP/1.1", host, agent, ACCEPT, "", ""],
                ["GET /prefix/records HTTP/1.1", host, agent, ACCEPT, "", ""],
                [
                    "POST /prefix/adjustendpoints HTTP/1.1",
                    host,
                    agent,
                    "Content-Length: 71",
                    ACCEPT,
                    CONTENT,
                    "",
                    adjusted,
                ],
                ["POST /prefix/records HTTP/1.1", host, agent, size + "82", CONTENT, "", applied],
            ]

            assert server.requests == ["\r\n".join(each).encode() for each in lines]

    def test_a_url_without_a_path_requests_the_root(self) -> None:
        with ScriptedServer(answer("200 OK", b"{}")) as server:
            ClientModel(f"http://{server.address}").negotiate()

            assert server.requests[0].startswith(b"GET / HTTP/1.1\r\n")


def negotiate(reply: bytes) -> Filter:
    with ScriptedServer(reply) as server:
        return ClientModel(f"http://{server.address}").negotiate()


class TestNegotiation:
    def test_the_filter_at_the_root_is_read(self) -> None:
        body = b'{"domainFilter":{"filters":["other"]},"include":["example.com"],"exclude":["x.example.com"]}'

        assert negotiate(answer("200 OK", body)) == Filter(("example.com",), ("x.example.com",))

    @pytest.mark.parametrize(
        "reply",
        [
            answer("500 Internal Server Error"),
            answer("200 OK", b"{}", "application/json"),
            answer("200 OK", b"{}", "application/external.dns.webhook+json; version=1"),
            answer("200 OK", b"[]"),
            answer("200 OK", b'{"include":["a"],"regexInclude":"b"}'),
            answer("200 OK", b'{"regexExclude":"("}'),
        ],
        ids=["status", "media type", "space", "array", "both kinds", "expression"],
    )
    def test_any_other_answer_is_a_hard_error(self, reply: bytes) -> None:
        with pytest.raises(HardError):
            negotiate(reply)


def list_records(client: ClientModel) -> None:
    client.list_records()


def adjust(client: ClientModel) -> None:
    client.adjust_endpoints([EXAMPLE])


def apply(client: ClientModel) -> None:
    client.apply_changes(Changes(create=(EXAMPLE,)))


class TestVerdicts:
    @pytest.mark.parametrize("call", [list_records, adjust, apply])
    @pytest.mark.parametrize("status", ["500 a", "503 b", "510 c"])
    def test_server_errors_up_to_510_are_soft(self, call: Call, status: str) -> None:
        with pytest.raises(SoftError):
            run(call, answer(status, b"{}"))

    @pytest.mark.parametrize("call", [list_records, adjust, apply])
    @pytest.mark.parametrize("status", ["202 a", "302 b", "400 c", "429 d", "511 e", "599 f"])
    def test_every_other_status_is_hard(self, call: Call, status: str) -> None:
        with pytest.raises(HardError):
            run(call, answer(status, b"[]"))

    @pytest.mark.parametrize(("call", "status"), [(list_records, "204 a"), (adjust, "204 b"), (apply, "200 c")])
    def test_the_wrong_success_is_hard(self, call: Call, status: str) -> None:
        with pytest.raises(HardError):
            run(call, answer(status))

    @pytest.mark.parametrize("call", [list_records, adjust])
    def test_the_wrapped_shape_is_hard(self, call: Call) -> None:
        with pytest.raises(HardError, match="cannot decode"):
            run(call, answer("200 OK", b'{"endpoints":[]}'))

    @pytest.mark.parametrize("call", [list_records, adjust, apply])
    def test_a_dropped_connection_is_hard(self, call: Call) -> None:
        with pytest.raises(HardError):
            run(call, b"")


def run(call: Call, reply: bytes) -> None:
    with ScriptedServer(reply) as server:
        call(ClientModel(f"http://{server.address}"))


class TestReconcile:
    def test_a_pass_without_differences_applies_nothing(self) -> None:
        listed = b'[{"dnsName":"x.example.com","recordType":"A","targets":["192.0.2.1"],"recordTTL":0}]'
        with ScriptedServer(answer("200 OK", listed), answer("200 OK", listed)) as server:
            done = ClientModel(f"http://{server.address}").reconcile([EXAMPLE])

        assert done.is_no_op
        assert len(server.requests) == 2

    def test_a_pass_sends_ownership_records_in_the_spelling_of_its_generation(self) -> None:
        adjusted = b'[{"dnsName":"x.example.com","recordType":"A","targets":["192.0.2.1"],"recordTTL":0}]'
        with ScriptedServer(answer("200 OK", b"[]"), answer("200 OK", adjusted), answer("204 No Content")) as server:
            client = ClientModel(f"http://{server.address}", registry=TxtRegistry("me"), generation=Generation.PASCAL)
            done = client.reconcile([EXAMPLE])

        assert [each.dns_name for each in done.changes.create] == ["x.example.com", "a-x.example.com"]
        assert server.requests[2].endswith(b'],"UpdateOld":null,"UpdateNew":null,"Delete":null}\n')
