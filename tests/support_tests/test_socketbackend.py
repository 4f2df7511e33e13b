"""What a test reports when the script of its backend fails."""

from __future__ import annotations

import socket

import pytest

from tests.support.recordingbackend import Received, RecordingBackend, Reply
from tests.support.socketbackend import Dialogue, SocketBackend


def fail(dialogue: Dialogue) -> None:
    dialogue.read_request()
    raise ValueError("in the script")


def ask(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        return sock.recv(100)


def ask_and_raise(address: str) -> None:
    """Raises once the script has failed."""
    assert ask(address) == b""
    raise LookupError("in the test")


def test_the_failure_of_a_script_fails_its_test() -> None:
    with pytest.raises(AssertionError, match="a script failed: ValueError"), SocketBackend(fail) as backend:
        ask(backend.address)


def test_the_failure_of_a_test_is_shown_with_that_of_a_script() -> None:
    with pytest.raises(LookupError) as raised, SocketBackend(fail) as backend:
        ask_and_raise(backend.address)

    assert raised.value.__notes__ == ["a script failed: ValueError('in the script')"]


def test_the_failure_of_a_test_is_shown_with_that_of_a_recording_backend() -> None:
    def respond(_: Received) -> Reply:
        raise ValueError("in the script")

    with pytest.raises(LookupError) as raised, RecordingBackend(respond=respond) as backend:
        ask_and_raise(backend.address)

    assert raised.value.__notes__ == ["a script failed: ValueError('in the script')"]
