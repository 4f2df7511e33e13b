"""The first process of each worker, started before the supervisor's own rooms are imported.

Both need some tenths of a second for imports, which so go on side by side. A process that could not be started is left
to the worker's slot, which tries again and tells. At the end none of them is left, whether it was used or not.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from proxy.supervisor.workerprocess import WorkerProcess

_REAP_S: Final = 5.0


@contextlib.contextmanager
def first_workers(count: int, jit: bool | None = None) -> Iterator[Mapping[int, WorkerProcess]]:
    """By the worker's index. `jit`: as `WorkerProcess` has it."""
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
