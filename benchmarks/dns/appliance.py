"""The simulated network controller, run as a separate process, and its findings."""

import sys
from pathlib import Path
from typing import Any, Self

import msgspec

from benchmarks.dns import data
from benchmarks.httpcall import Connection
from tests.support.controller.simulator import API_KEY
from tests.support.process import Process

START_TIMEOUT_S = 60.0
_V2_PATH = "/proxy/network/v2/api/site/default/static-dns"


class Findings(msgspec.Struct, frozen=True):
    """The effect of one apply on the controller and on the network's resolver."""

    calls: int
    writes: int
    longest_gap_s: float
    names_ever_empty: int


class Appliance:
    """Holds `rows`, a file of presets. Shared by all webhooks, which are measured in turns."""

    def __init__(self, rows: Path) -> None:
        command = [sys.executable, "-m", "tests.support.controller", "--rows", str(rows)]
        self._process = Process("controller", command).start()
        self.url = self._process.wait_for_line(lambda line: line.startswith("http"), "its URL", START_TIMEOUT_S)
        self._connection = Connection(self.url.removeprefix("http://"))
        self._changing = self._some_row()
        self._changes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.stop()

    def set_latency(self, latency_s: float) -> None:
        self._call("PUT", "/_sim/latency", {"latency_s": latency_s})

    def forget_findings(self) -> None:
        self._call("POST", "/_sim/reset")

    def findings(self) -> Findings:
        state = self._call("GET", "/_sim/state")
        return Findings(
            calls=sum(call["count"] for call in state["calls"]),
            writes=sum(state["writes"].values()),
            longest_gap_s=state["max_gap_s"],
            names_ever_empty=len(state["names_ever_empty"]),
        )

    def change_one_row(self) -> None:
        """Give a row in the middle an address that it never had, as a person would in the controller's UI."""
        row = self._changing
        self._changes += 1
        row["value"] = data.address((1 << 22) + self._changes)
        self._call("PUT", f"{_V2_PATH}/{row['_id']}", row)

    def _some_row(self) -> dict[str, Any]:
        rows = [row for row in self._call("GET", _V2_PATH) if row["record_type"] == "A"]
        row: dict[str, Any] = rows[len(rows) // 2]
        return {key: row[key] for key in ("_id", "key", "record_type", "value", "enabled", "ttl")}

    def _call(self, method: str, path: str, content: object = None) -> Any:
        body = b"" if content is None else msgspec.json.encode(content)
        headers = {"X-API-KEY": API_KEY, "Content-Type": "application/json"}
        answer = self._connection.call(method, path, body, headers)
        if answer.status_code != 200:
            text = answer.body[:200].decode("utf-8", "replace")
            raise RuntimeError(f"the simulated controller answered {method} {path} with {answer.status_code}: {text}")
        return msgspec.json.decode(answer.body) if answer.body else None
