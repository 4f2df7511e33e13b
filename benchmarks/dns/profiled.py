"""`dnswebhook` under a profiler: `python -m benchmarks.dns.profiled DIRECTORY run ...` is the daemon itself.

Every thread is profiled by CPU time (waiting for sockets, locks and the interpreter does not count). Each SIGUSR1
writes the sums so far, by stage, to `DIRECTORY/<number>.json`; the difference shows what happened between two signals.
The profiler makes small Python functions look more expensive than they are, so read shares, not milliseconds.
"""

import cProfile
import gc
import itertools
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import msgspec

from benchmarks.dns.stages import seconds_by_stage
from dnswebhook import cli


class Profiler:
    """One profile per thread, since the interpreter's profiler sees only the thread that enabled it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._profiles: list[cProfile.Profile] = []

    def install(self) -> None:
        # Blocked in every thread, so that only the waiting thread gets it: a handler could run late.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        threading.Thread(target=self._write_on_signals, name="snapshots", daemon=True).start()
        threading.setprofile(self._begin_thread)

    def _begin_thread(self, _frame: FrameType, _event: str, _argument: object) -> None:
        profile = cProfile.Profile(time.thread_time)
        self._profiles.append(profile)
        profile.enable()  # replaces this function as the thread's profiler

    def _write_on_signals(self) -> None:
        while signal.sigwait({signal.SIGUSR1}):
            self._write()

    def _write(self) -> None:
        # A collection in between could let a profiled thread continue and change what is being read.
        gc.disable()
        entries = [entry for profile in self._profiles for entry in profile.getstats()]
        gc.enable()
        path = self._directory / f"{next(self._numbers)}.json"
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(seconds_by_stage(entries)))
        unfinished.rename(path)


if __name__ == "__main__":
    Profiler(Path(sys.argv[1])).install()
    sys.argv[:2] = ["dnswebhook"]
    cli.main()
