"""Drives the real external-dns binary against a webhook: one pass, or its loop.

Desired records are the DNSEndpoint objects of one namespace. A namespace without any replaces `--source=empty`, which
the flags of 0.21.0 accept but the program then rejects ("source not found"). The loop checks its clock once a second,
so one pass per second is the fastest possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import ReservedPort
from tests.support.process import Process, shown
from tests.support.programs import SHORT_LIVED

ALL_RECORD_TYPES = ("A", "AAAA", "CNAME", "TXT", "MX", "SRV", "NS", "PTR", "NAPTR")
ONCE_TIMEOUT_S = 60.0
METRICS_TIMEOUT_S = 5.0
SETTLED_S = 45.0
NO_OP = "All records are already up to date"


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one `--once` run."""

    exit_code: int
    lines: tuple[str, ...]

    @property
    def is_no_op(self) -> bool:
        return any(map(_is_no_op, self.lines))

    @property
    def log(self) -> str:
        return shown(self.lines)


@dataclass(frozen=True, slots=True)
class ExternalDns:
    """The settings of one installation; `namespace` contains what `source` reads."""

    program: Path
    webhook_url: str
    kubeconfig: Path
    namespace: str
    registry: str = "txt"
    policy: str = "sync"
    owner_id: str = "tunnelgw-tests"
    record_types: Sequence[str] = ALL_RECORD_TYPES
    extra: Sequence[str] = field(default=())
    source: str = "crd"

    def in_namespace(self, namespace: str) -> ExternalDns:
        """The same installation with other desired records."""
        return replace(self, namespace=namespace)

    def once(self, timeout_s: float = ONCE_TIMEOUT_S) -> Pass:
        process = Process("external-dns --once", [*self._command(metrics_port=0), "--once"], SHORT_LIVED)
        with process:
            exit_code = process.wait(timeout_s)
        return Pass(exit_code, process.lines)

    def loop(self) -> ExternalDnsLoop:
        metrics_port = ReservedPort()  # 0 would do, but the program does not report which port it got
        return ExternalDnsLoop([*self._command(metrics_port.number), "--interval=1s"], metrics_port)

    def _command(self, metrics_port: int) -> list[str]:
        types = [f"--managed-record-types={record_type}" for record_type in self.record_types]
        return [
            str(self.program),
            "--provider=webhook",
            f"--webhook-provider-url={self.webhook_url}",
            f"--source={self.source}",
            f"--kubeconfig={self.kubeconfig}",
            f"--namespace={self.namespace}",
            # Each object gets a status update in the first pass; at the default of 5 per second, 60 of them take 10 s.
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            *types,
            f"--registry={self.registry}",
            f"--policy={self.policy}",
            f"--txt-owner-id={self.owner_id}",
            f"--metrics-address=127.0.0.1:{metrics_port}",
            "--log-level=info",
            *self.extra,
        ]


class ExternalDnsLoop(Process):
    """external-dns as operators run it: one pass per second until it is stopped or gives up by itself."""

    def __init__(self, command: Sequence[str], metrics_port: ReservedPort) -> None:
        super().__init__("external-dns", command)
        self._metrics_port = metrics_port

    def wait_settled(self, timeout_s: float = SETTLED_S) -> None:
        """Return after a whole pass that began after this call and found nothing to do."""
        # The first no-op line may end a pass that began before the call; the second one cannot.
        so_far = sum(map(_is_no_op, self.lines))
        self.wait_for_line(_is_no_op, "a pass without changes", timeout_s, nth=so_far + 2)

    @property
    def soft_errors(self) -> int:
        """How many passes have failed in a way that external-dns survives."""
        return sum(map(_is_soft_error, self.lines))

    def wait_for_soft_error(self, since: int = 0, timeout_s: float = SETTLED_S) -> None:
        """Return once a further pass has failed so. `since`: `soft_errors` before there was anything that makes it."""
        self.wait_for_line(_is_soft_error, "a soft error", timeout_s, nth=since + 1)

    def metric(self, name: str) -> float:
        """The value of a metric without labels, such as `controller_consecutive_soft_errors`."""
        text = requests.get(f"http://{self._metrics_port.address}/metrics", timeout=METRICS_TIMEOUT_S).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"external_dns_{name}":
                    return float(sample.value)
        raise AssertionError(f"external-dns has no metric external_dns_{name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._metrics_port:
            super().__exit__(kind, error, trace)


def _is_no_op(line: str) -> bool:
    return NO_OP in line


def _is_soft_error(line: str) -> bool:
    return "consecutive soft errors" in line
