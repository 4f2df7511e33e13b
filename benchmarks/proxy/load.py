"""Load by h2load, and its results: requests per second, latencies, failures."""

import re
import subprocess
import tempfile
from pathlib import Path

import msgspec


class Load(msgspec.Struct, frozen=True):
    """The parameters of a load. With `requests` 0, it lasts `duration_s`."""

    protocol: str = "h2"
    """The client's protocol: h1 or h2."""
    connections: int = 1
    streams: int = 64
    """Concurrent streams on each connection."""
    requests: int = 0
    duration_s: float = 0.0
    rate: int = 0
    """Requests per second over all connections; 0 means as fast as possible."""
    upload: Path | None = None


class Seen(msgspec.Struct, frozen=True):
    requests: int
    failed: int
    wall_s: float
    latencies_us: list[int]
    """Sorted."""

    @property
    def per_s(self) -> float:
        return self.requests / self.wall_s if self.wall_s else 0.0

    def quantile_ms(self, share: float) -> float:
        if not self.latencies_us:
            return 0.0
        return self.latencies_us[min(len(self.latencies_us) - 1, int(share * len(self.latencies_us)))] / 1000


class Running:
    """h2load at work, for cases that do something in the meantime."""

    def __init__(self, load: Load, url: str) -> None:
        self._log = Path(tempfile.mkstemp(prefix="h2load-")[1])
        self._log.unlink()
        command = ["h2load", f"-c{load.connections}", f"-m{load.streams}", "-t1", f"--log-file={self._log}"]
        if load.protocol == "h1":
            command.append("--h1")
        if load.requests:
            command.append(f"-n{load.requests}")
        else:
            command += [f"-D{load.duration_s:g}"]
        if load.rate:
            command.append(f"--rps={load.rate / load.connections:g}")
        if load.upload:
            command.append(f"-d{load.upload}")
        self._process = subprocess.Popen([*command, url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self) -> Seen:
        output, _ = self._process.communicate(timeout=600)
        counts = re.search(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded", output)
        took = re.search(r"finished in ([\d.]+)(us|ms|s)", output)
        if counts is None or took is None:
            raise RuntimeError(f"h2load said:\n{output[-2000:]}")
        wall_s = float(took[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[took[2]]
        latencies_us: list[int] = []
        if self._log.exists():
            # start time, status code, microseconds
            latencies_us = sorted(int(line.split("\t")[2]) for line in self._log.read_text().splitlines())
            self._log.unlink()
        done, succeeded = int(counts[2]), int(counts[3])
        failed = max(int(counts[1]) if "-n" in output else done, done) - succeeded
        return Seen(done, failed, wall_s, latencies_us)


def run(load: Load, url: str) -> Seen:
    return Running(load, url).wait()
