"""`tunnelgw run` as a process, against a real API server, with the provider and the proxies that a test gives it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from tests.proxy.site import TOKEN, eventually
from tests.support.daemon import Daemon, LogLine

DEADLINE_S = 60.0
QUICK = ("--proxy-visit-interval", "300ms", "--drift-interval", "1s")


class Controller(Daemon):
    def __init__(
        self, kubeconfig: Path | str, *arguments: str, env: Mapping[str, str] | None = None, token: str | None = TOKEN
    ) -> None:
        """`token`: of the proxies, in the environment; None: a Secret of the API server holds it."""
        given = ["--metrics-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0", *QUICK, *arguments]
        secret = {} if token is None else {"PROXY_AUTH_TOKEN": token}
        super().__init__("tunnelgw", ["run", *given], {"KUBECONFIG": str(kubeconfig), **secret, **(env or {})})

    def readiness(self) -> tuple[int, str]:
        """Status code and message."""
        response = requests.get(f"{self.url('health')}/readyz", timeout=DEADLINE_S)
        return response.status_code, response.json()["message"]

    def wait_until_ready(self) -> None:
        eventually(lambda: self.readiness()[0] == 200, "the controller is ready", DEADLINE_S)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        page = requests.get(f"{self.url('metrics')}/metrics", timeout=DEADLINE_S).text
        lines = [line for line in page.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(pair in line for pair in wanted))

    def last_words(self) -> str:
        """Of a controller that gave up: its `exiting` line's error; the exit code has to be 1."""
        exit_code = self.wait(DEADLINE_S)
        assert exit_code == 1, f"exit code {exit_code}; log:\n{self.tail}"
        (line,) = self.lines_of("exiting")
        return str(line["error"])

    def expect(self, msg: str, **fields: Any) -> LogLine:
        return self.wait_for_message(msg, DEADLINE_S, **fields)
