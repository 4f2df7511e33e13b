"""The limit on the number of open files of this process."""

import resource

from daemonkit.lifecycle import StartFailed


def open_files_limits() -> tuple[int, int]:
    """The soft and the hard limit. Raises StartFailed if they may not be read, as under a strict seccomp profile."""
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError as error:
        raise StartFailed(
            f"cannot read the limit of open files: {error.strerror}; allow the system call prlimit64 "
            "(SystemCallFilter= of a unit, a container's seccomp profile)"
        ) from error
