"""Large buffers return to the system when freed, smaller ones on request; the heap of one round of work is kept."""

import subprocess
import sys

from daemonkit.memory import free_heap_bytes, give_back_large_buffers, keep_free_heap
from tests.support.requirements import not_possible_here

# Freed below an allocation that is still used, so that the top of the heap cannot be trimmed.
PROGRAM = """
import ctypes, pathlib
from daemonkit.memory import give_back_large_buffers

def resident_kib():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])

give_back_large_buffers()
before = bytearray(b"x" * 30_000_000)
del before
started_kib = resident_kib()
buffers = [bytearray(b"x" * 4_000_000) for _ in range(8)]
pin = bytearray(b"x" * 200_000)
del buffers
print(resident_kib() - started_kib)
"""


def test_freed_buffers_do_not_stay_resident() -> None:
    if sys.platform != "linux":
        not_possible_here("reads /proc")
    if not give_back_large_buffers():
        not_possible_here("this C library has no mallopt")

    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert int(run.stdout) < 8_000


WORK = """
import resource
from daemonkit.memory import give_back_large_buffers, keep_free_heap

def work():
    for _ in range(50):
        del [bytes(200_000) for _ in range(5)][:]

give_back_large_buffers()
keep_free_heap(2 << 20)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_kept_heap_causes_no_new_page_faults() -> None:
    if not keep_free_heap(128 * 1024):  # the library's own
        not_possible_here("this C library has no mallopt")

    run = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)

    assert int(run.stdout) < 1_000  # 12,000 where each round faults in its pages anew


SMALL = """
from daemonkit.memory import free_heap_bytes, give_back_free_heap, give_back_large_buffers, resident_bytes

give_back_large_buffers(2 << 20)
before = resident_bytes()
buffers = [bytes(200_000) + b"x" for _ in range(300)]
pin = bytes(300_000)
del buffers
kept, free = resident_bytes(), free_heap_bytes()
give_back_free_heap()
print(kept - before, free, resident_bytes() - before)
"""


def test_freed_heap_below_a_live_object_is_returned_on_request() -> None:
    if not free_heap_bytes():
        not_possible_here("this C library has no mallinfo2")

    run = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, check=True)

    kept, free, left = map(int, run.stdout.split())
    assert kept > 50_000_000
    assert free > 50_000_000
    assert left < 8_000_000


COLLECTOR = """
import gc, weakref
from daemonkit.memory import spare_the_collector

class Thing:
    pass

def cycle():
    one = Thing()
    one.itself = one
    return weakref.ref(one)

gc.disable()
garbage = cycle()
gc.enable()
spare_the_collector()
lasting = gc.get_freeze_count() > 1_000 and len(gc.get_objects()) < 1_000
rounds = []
gc.callbacks.append(lambda phase, info: rounds.append(phase))
made = [[] for _ in range(40_000)]
print(garbage() is None, lasting, len(rounds))
"""


def test_the_collector_frees_what_is_garbage_once_and_then_leaves_what_lasts_and_short_work_alone() -> None:
    run = subprocess.run([sys.executable, "-c", COLLECTOR], capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["True", "True", "0"]
