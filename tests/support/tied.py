"""Run a program that the kernel kills when the process that started it ends, however it ends.

    python -m tests.support.tied PARENT_PID COMMAND [ARGUMENT ...]

A test run may be killed outright (a timeout, Ctrl-\\), and then no fixture stops anything; this makes sure that nothing
outlives it. The program takes over the process id. The tie is to the *thread* that started it: start such programs from
a thread that lives as long as they should. Only Linux has the call; elsewhere nothing is tied.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tied(command: Sequence[str]) -> list[str]:
    """The command that runs `command` tied to the calling process."""
    return [sys.executable, "-S", "-E", str(Path(__file__).resolve()), str(os.getpid()), *command]


def main() -> None:
    parent_pid, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent_pid):  # it ended before the tie was made
            sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
