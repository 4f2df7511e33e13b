"""One worker process: started by exec, with a control channel, and a description of how it ended."""

import contextlib
import os
import signal
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proxy.control import Channel, FromWorker, channel_pair

SEND_TIMEOUT_S = 5.0
_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
)
"""Signals that end a program after a fault of its own, sent by the kernel or by the program itself."""
# Made before any threads start: while msgspec analyses a type in one thread, others that use the type would crash.
_learnt = msgspec.msgpack.Decoder(FromWorker)
_WITHHELD = frozenset({"PROXY_AUTH_TOKEN", "TUNNEL_TOKEN", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""Variables that workers do not get: secrets, and those for notifying the service manager, which only the main process
may do."""
_PACKAGES = Path(__file__).resolve().parents[2]


class WorkerProcess:
    def __init__(self, jit: bool | None) -> None:
        """Start the process. `jit` turns its JIT on or off; None leaves that to `PYTHON_JIT`. Raises OSError."""
        ours, theirs = channel_pair()
        try:
            with _stop_signals_blocked():
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "proxy", "worker", "--fd", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(jit),
                )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel: Channel[FromWorker] = Channel(ours, FromWorker)
        self.channel.limit_sending(SEND_TIMEOUT_S)
        self.pid = self._process.pid

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def wait(self, timeout_s: float) -> bool:
        """Returns whether it has ended."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def crashed(self) -> bool:
        """It was ended by a fault of the program or of its interpreter, not on request."""
        code = self._process.returncode
        return code is not None and -code in _CRASHES

    def ending(self) -> str:
        """How it ended: `exit code 1` or `signal SIGKILL`."""
        code = self._process.returncode
        if code is None:
            return "still running"
        if code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
        return f"signal {-code}"


@contextlib.contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Block stop signals in the child until it ignores them: one sent to all processes must not end it on startup."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment(jit: bool | None) -> dict[str, str]:
    """Our environment without what is withheld, and with the path of our packages if they are not installed."""
    kept = {name: value for name, value in os.environ.items() if name not in _WITHHELD and _is_heeded(name)}
    if sys.flags.no_user_site:
        kept["PYTHONNOUSERSITE"] = "1"
    given = kept.get("PYTHONPATH", "")
    is_installed = any(map(_is_ours, (*site.getsitepackages(), site.getusersitepackages())))
    if not is_installed and (
        _is_ours(sys.path[0] or os.curdir) or not any(map(_is_ours, filter(None, given.split(os.pathsep))))
    ):
        # First, since another package there may have the name of one of ours.
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGES), given)))
    if jit is not None:
        kept["PYTHON_JIT"] = "1" if jit else "0"
    return kept


def _is_ours(folder: str) -> bool:
    """Whether it holds our packages, also if a link leads there."""
    try:
        return _PACKAGES.samefile(folder)
    except OSError:
        return False


def _is_heeded(name: str) -> bool:
    """False for what our own interpreter was told to ignore (-E, -I). Workers are not told, since PYTHON_JIT would be
    ignored as well."""
    return not (sys.flags.ignore_environment and name.startswith("PYTHON"))
