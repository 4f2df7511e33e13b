"""The log of a worker that cannot start."""

from __future__ import annotations

import json
import subprocess
import sys

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Channel, FromWorker, channel_pair
from tests.proxy.site import DEADLINE_S
from tests.support.process import REPOSITORY

WITHOUT_THREADS = """
import sys, threading
def refused(_thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refused
from proxy.worker.main import main
sys.exit(main(int(sys.argv[1])))
"""


def test_a_thread_that_cannot_be_started_is_one_error_line_and_exit_code_1() -> None:
    ours, theirs = channel_pair()
    with ours, theirs:
        Channel[FromWorker](ours, FromWorker).send(Begin(3, "info", "json", AccessLogSettings("errors", 1.0)))
        command = [sys.executable, "-c", WITHOUT_THREADS, str(theirs.fileno())]
        ended = subprocess.run(
            command,
            cwd=REPOSITORY,
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    assert ended.returncode == 1
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["level"], line["msg"], line["worker"]) == ("ERROR", "exiting", 3)
    assert "can't start new thread: raise the limit of tasks" in line["error"]
