"""What becomes of a worker that has been stopped (SIGSTOP, as by a debugger) when its supervisor is gone.

A worker learns from the control channel that its supervisor has gone, and ends. A stopped one reads nothing: it would
keep its share of the ports, and get connections beside a proxy that has been started since. So the kernel wakes it. Not
by SIGKILL, since a worker that runs writes its last lines of the access log, and ends by itself.
"""

import ctypes
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # sys/prctl.h


def wake_when_orphaned() -> bool:
    """Have the kernel send SIGCONT when the supervisor has gone, or the thread of it that started this process. A
    process that is not stopped ignores the signal.

    False: the system has no such thing (only Linux has), and nothing was changed.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGCONT)) == 0)
