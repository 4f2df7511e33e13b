"""HTTP over a unix socket."""

import socket
from pathlib import Path

import pytest

from daemonkit.unixhttp import UnixHTTPConnection


@pytest.mark.timeout(20)
def test_a_server_on_a_unix_socket_that_says_nothing_is_given_up_at_the_timeout(tmp_path: Path) -> None:
    path = str(tmp_path / "http.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        connection = UnixHTTPConnection(path, 0.1)
        connection.request("GET", "/")

        with pytest.raises(TimeoutError):
            connection.getresponse()

        connection.close()
