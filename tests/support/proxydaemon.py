"""`tunnelgw-proxy run` as a process: the address of its config API, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import requests

from tests.support.daemon import Daemon

ANSWER_S = 60.0
"""Longer than a PUT may take, which waits for the workers."""


class ProxyDaemon(Daemon):
    def __init__(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """The config API is on a free loopback port unless `arguments` say otherwise."""
        address = [] if "--config-addr" in arguments else ["--config-addr", "127.0.0.1:0"]
        super().__init__("proxy", ["run", *address, *arguments], env)

    @cached_property
    def api(self) -> str:
        """Determined once, since the log of a proxy under load is long."""
        return self.url("config")

    @property
    def config_url(self) -> str:
        return f"{self.api}/config"

    def send(self, document: bytes, headers: Mapping[str, str]) -> requests.Response:
        """Send PUT /config."""
        given = {"Content-Type": "application/json", **headers}
        return requests.put(self.config_url, data=document, headers=given, timeout=ANSWER_S)

    def metric(self, name: str, **labels: str) -> float | None:
        """The sum of the samples with this name and these labels; None if there are none."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        page = requests.get(f"{self.api}/metrics", timeout=ANSWER_S).text
        lines = [line for line in page.splitlines() if line.startswith((name + "{", name + " "))]
        found = [float(line.rpartition(" ")[2]) for line in lines if all(pair in line for pair in wanted)]
        return sum(found) if found else None
