"""Data in the kernel's queues between processes: sent and not yet read (proc(5), /proc/net/tcp).

How large the kernel lets its buffers grow depends on the machine. What the processes themselves hold is what was sent,
less what was read and what is queued here.
"""

import os
from pathlib import Path

from tests.support.descriptors import open_descriptors


def queued_bytes(*pids: int) -> int:
    """Queued in all TCP connections of these processes and of this one."""
    sockets = {descriptor for pid in (os.getpid(), *pids) for descriptor in open_descriptors(pid)}
    total_bytes = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, _, _, _, queues, _, _, _, _, inode, *_ = line.split()
            if f"socket:[{inode}]" in sockets:
                unsent, _, unread = queues.partition(":")
                total_bytes += int(unsent, 16) + int(unread, 16)
    return total_bytes
