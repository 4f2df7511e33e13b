"""The file of the tunnel's token, where it cannot be read twice."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from daemonkit.logformat import line_of
from daemonkit.secret import Secret
from proxy.supervisor.tokenfile import TokenFile
from tests.proxy.site import DEADLINE_S


class Looks(threading.Event):
    """Set after a number of waits, none of which takes time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._left -= 1
        if self._left < 0:
            self.set()
        return self.is_set()


def test_a_pipe_that_gave_the_token_is_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fifo = tmp_path / "token"
    os.mkfifo(fifo)
    used: list[Secret] = []
    file = TokenFile(Secret("a token", str(fifo)), used.append)
    watching = threading.Thread(target=file.watch, args=[Looks(3)], daemon=True)

    watching.start()
    watching.join(DEADLINE_S)

    assert not watching.is_alive()
    assert (used, caplog.records) == ([], [])


def test_a_token_file_that_cannot_be_read_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its directory may be inaccessible for a while, or its file server; a name that is too long fails alike."""
    file = TokenFile(Secret("a token", str(tmp_path / ("n" * 300))), lambda _: None)

    file.watch(Looks(3))

    (line,) = map(line_of, caplog.records)
    assert line["msg"] == "cannot use the tunnel token file, the previous token stays in use"
    assert "File name too long" in str(line["error"])
