"""What becomes of a worker that has been stopped (SIGSTOP, as by a debugger) when its supervisor is gone.

A worker whose supervisor has gone learns so from the control channel, and ends. One that is stopped reads nothing: it
would keep its share of the ports, and the kernel give it connections, beside a proxy that has been started since. So
the kernel wakes it. Not by SIGKILL: who runs writes its last lines of the access log, and ends by itself.
"""

import ctypes
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # sys/prctl.h


def wake_when_orphaned() -> bool:
    """Also at the end of the thread that started this process: nothing happens then to one that runs.

    False where the system has no such thing (Linux alone has), and nothing was changed.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGCONT)) == 0)
