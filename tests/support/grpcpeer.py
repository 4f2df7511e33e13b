"""A gRPC server and clients by grpcio, with bytes as messages, so that no generated code is needed.

Service `test.Echo`:
    Unary        one message -> the same; metadata `x-note` comes back as initial, `x-tail` as trailing metadata
    Split        one message -> its bytes, one message each
    Join         many messages -> all of them in one
    Chat         each message -> the same, at once
    Fail         aborts with the code that the message names, and its details
    Late         sends a message, then aborts
    Hang         sends nothing until the client has gone
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from types import TracebackType
from typing import Any, Protocol, Self

import grpc

from tests.support.certificates import Issued
from tests.support.ports import LOOPBACK

SERVICE = "test.Echo"
METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler,
    "Split": grpc.unary_stream_rpc_method_handler,
    "Join": grpc.stream_unary_rpc_method_handler,
    "Chat": grpc.stream_stream_rpc_method_handler,
    "Fail": grpc.unary_unary_rpc_method_handler,
    "Late": grpc.unary_stream_rpc_method_handler,
    "Hang": grpc.unary_unary_rpc_method_handler,
}
DETAILS = "details with spaces, and ümläuts"


class GrpcServer:
    """`hanging` is set when a call of `Hang` has arrived, `gone` when its client has left.

    `deadlines` holds the seconds that clients of `Unary` had left, and when that was.
    """

    def __init__(self, certificate: Issued | None = None) -> None:
        self.hanging = threading.Event()
        self.gone = threading.Event()
        self.deadlines: list[tuple[float | None, float]] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: kind(getattr(self, f"_{name.lower()}")) for name, kind in METHODS.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        if certificate is None:
            port = self._server.add_insecure_port(f"{LOOPBACK}:0")
        else:
            pair = (certificate.key_pem.encode(), certificate.chain_pem.encode())
            port = self._server.add_secure_port(f"{LOOPBACK}:0", grpc.ssl_server_credentials([pair]))
        self.address = f"{LOOPBACK}:{port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait(10)

    def _unary(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        self.deadlines.append((context.time_remaining(), time.monotonic()))
        notes = tuple(pair for pair in context.invocation_metadata() if pair[0] == "x-note")
        context.send_initial_metadata(notes)
        context.set_trailing_metadata((("x-tail", "17"), ("x-tail-bin", b"\x00\xff")))
        return message

    def _split(self, message: bytes, _: grpc.ServicerContext) -> Iterator[bytes]:
        for index in range(len(message)):
            yield message[index : index + 1]

    def _join(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        return b"".join(messages)

    def _chat(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        yield from messages

    def _fail(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode[message.decode()], DETAILS)
        raise AssertionError("abort returns never")

    def _late(self, message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield message
        context.abort(grpc.StatusCode.DATA_LOSS, DETAILS)

    def _hang(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        is_over = threading.Event()  # for this call: an earlier one may end only now

        def leave() -> None:
            is_over.set()
            self.gone.set()

        if not context.add_callback(leave):
            leave()  # it ended before the callback was added
        self.hanging.set()
        is_over.wait(30)
        return message


class Answers(Protocol):
    """What a server streams."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def code(self) -> grpc.StatusCode: ...


class GrpcClient:
    """Calls methods of `test.Echo` by name."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary(self, method: str, message: bytes, *, timeout_s: float = 15.0, **options: Any) -> tuple[bytes, grpc.Call]:
        """The response message, and the call for further details."""
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{SERVICE}/{method}")
        return call.with_call(message, timeout=timeout_s, **options)

    def start(self, method: str, message: bytes, timeout_s: float = 30.0) -> grpc.Future[bytes]:
        """Start a call without waiting for it."""
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{SERVICE}/{method}")
        return call.future(message, timeout=timeout_s)

    def split(self, method: str, message: bytes, timeout_s: float = 15.0) -> Answers:
        call: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(f"/{SERVICE}/{method}")
        return call(message, timeout=timeout_s)

    def join(self, messages: Iterator[bytes], timeout_s: float = 15.0) -> bytes:
        call: grpc.StreamUnaryMultiCallable[bytes, bytes] = self._channel.stream_unary(f"/{SERVICE}/Join")
        return call(messages, timeout=timeout_s)

    def chat(self, messages: Iterator[bytes], timeout_s: float = 15.0) -> Answers:
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(f"/{SERVICE}/Chat")
        return call(messages, timeout=timeout_s)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def clear_client(port: int) -> GrpcClient:
    return GrpcClient(grpc.insecure_channel(f"{LOOPBACK}:{port}", options=_OPTIONS))


def tls_client(port: int, authority_pem: str) -> GrpcClient:
    credentials = grpc.ssl_channel_credentials(authority_pem.encode())
    return GrpcClient(grpc.secure_channel(f"localhost:{port}", credentials, options=_OPTIONS))


def usual_client(port: int, authority_pem: str, certificate: Issued) -> GrpcClient:
    """With a certificate of its own, and the retries that are on unless an application turns them off."""
    pair = (certificate.key_pem.encode(), certificate.chain_pem.encode())
    credentials = grpc.ssl_channel_credentials(authority_pem.encode(), *pair)
    return GrpcClient(grpc.secure_channel(f"localhost:{port}", credentials, options=_OWN))


_OWN = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
_OPTIONS = (*_OWN, ("grpc.enable_retries", 0))


def code_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Status code and details of a call that must fail."""
    try:
        found = call()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError(f"the call succeeded with {found!r}")
