"""The first process of each worker, started before the supervisor's own modules are imported.

The imports of both take a few tenths of a second, and so run in parallel. If a process cannot be started, the worker's
slot tries again and logs it. At the end all of these processes are killed, used or not.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from proxy.supervisor.workerprocess import WorkerProcess

_REAP_S: Final = 5.0


@contextlib.contextmanager
def first_workers(count: int, jit: bool | None = None) -> Iterator[Mapping[int, WorkerProcess]]:
    """Yields the processes by worker index. `jit`: see `WorkerProcess`."""
    processes: dict[int, WorkerProcess] = {}
    try:
        for index in range(count):
            with contextlib.suppress(OSError):
                processes[index] = WorkerProcess(jit)
        yield processes
    finally:
        for process in processes.values():
            process.kill()
        for process in processes.values():
            process.wait(_REAP_S)
            process.channel.close()
