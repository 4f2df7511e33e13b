"""Raises the limit of open files as far as permitted: each client needs one descriptor, or two with a backend.

Shells and service managers set a low limit for the sake of programs that call select(2), which none of ours does.
"""

import resource
from typing import Final

from daemonkit.logs import get_logger
from daemonkit.openfiles import open_files_limits

log = get_logger(__name__)

_MOST: Final = 1 << 20


def raise_open_files() -> None:
    """Raise the soft limit, which workers inherit. If that fails, the present one stays. Raises StartFailed."""
    soft, hard = open_files_limits()
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files", error=error, limit=soft)
