"""What the kernel knows about another process: CPU time and resident memory. Linux only."""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CLEAR_PEAK = "5"  # proc(5), clear_refs


def cpu_s(pid: int) -> float:
    """CPU time used so far, user and system; its resolution is one tick, mostly 10 ms."""
    # The command name, in parentheses, may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / _TICKS_PER_S


def rss_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmRSS")


def peak_rss_bytes(pid: int) -> int:
    """Largest RSS since the start, or since `forget_peak_rss`."""
    return _status_bytes(pid, "VmHWM")


def forget_peak_rss(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text(_CLEAR_PEAK)


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no {key}; want a running process on Linux")
