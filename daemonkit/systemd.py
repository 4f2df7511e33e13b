"""Reports our state to systemd: READY, STOPPING and the watchdog, over its datagram socket (sd_notify(3)).

READY means that our sockets are bound, not that the daemon can serve: readiness is reported at `/readyz`. Without
NOTIFY_SOCKET this module does nothing. A message that cannot be sent is dropped: systemd notices by itself.
"""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Mapping
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,20}")
"""Of 64 bits at most, as `_INFINITY_US`: Python refuses to read thousands of digits."""
_INFINITY_US: Final = 2**64 - 1
"""What systemd passes on for `WatchdogSec=infinity`, which turns the watchdog off."""


class Notifier:
    """Notifies the service manager.

    `watchdog_interval_s` is how often to notify the watchdog, half of its timeout; None without a watchdog.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = _socket_address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_interval_s = _watchdog_interval_s(environ)

    def ready(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(1.0)
            channel.connect(self._address)
            channel.send(message.encode())


def _socket_address(text: str) -> str:
    """A path, or an abstract socket name, which is written with @ and used with NUL; empty if we cannot reach any."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""


def _watchdog_interval_s(environ: Mapping[str, str]) -> float | None:
    pid, limit_us = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    if not (_NUMBER.fullmatch(limit_us) and 0 < int(limit_us) < _INFINITY_US):
        return None
    if pid and pid != str(os.getpid()):
        return None
    return min(int(limit_us) / 1_000_000 / 2, threading.TIMEOUT_MAX)
