"""A process that uses an embedded store until it is killed; its arguments are the state directory and what to do.

`write PREFIX COUNT`: creates records PREFIX-0, PREFIX-1 ... and prints each number once the store has acknowledged it.
`fill MAX_BYTES`: no file may grow beyond that; creates records until the store refuses one, and prints that error.
"""

import resource
import signal
import sys
from pathlib import Path

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError
from dnswebhook.model import RecordSpec
from dnswebhook.stores.embedded import EmbeddedStore

CALL_S = 20.0


def main() -> None:
    directory, task, *arguments = sys.argv[1:]
    store = EmbeddedStore(Path(directory))
    if task == "write":
        write(store, arguments[0], int(arguments[1]))
    else:
        fill(store, int(arguments[0]))
    store.close()


def write(store: EmbeddedStore, prefix: str, count: int) -> None:
    for number in range(count):
        store.create(RecordSpec(f"{prefix}-{number}.example.com", "A", "192.0.2.1", 300), Deadline.after(CALL_S))
        print(number, flush=True)


def fill(store: EmbeddedStore, max_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing then fails with EFBIG instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    number = 0
    while True:
        try:
            store.create(RecordSpec(f"host-{number}.example.com", "TXT", "x" * 4000), Deadline.after(CALL_S))
        except StoreError as error:
            print(f"{type(error).__name__}: {error}")
            print(number, flush=True)
            return
        number += 1


if __name__ == "__main__":
    main()
