"""Wakes a worker that is stopped (SIGSTOP, for example by a debugger) when its supervisor is gone.

A worker learns from the control channel that its supervisor is gone, and ends. A stopped one reads nothing: it would
keep its share of the ports and get connections meant for a proxy started since. So the kernel wakes it. Not with
SIGKILL, because a worker that runs ends by itself, after writing its last lines of the access log.
"""

import ctypes
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # sys/prctl.h


def wake_when_orphaned() -> bool:
    """Have the kernel send SIGCONT when the supervisor ends, or its thread that started this process. The signal has no
    effect on a process that is not stopped.

    Returns False if the system does not support this, as only Linux does.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGCONT)) == 0)
