"""What a worker gives back after a peak; in a process of its own, whose heap nobody else uses."""

import subprocess
import sys

from daemonkit.memory import free_heap_bytes
from tests.support.requirements import not_possible_here

DURING_A_PEAK = """
from daemonkit.memory import give_back_large_buffers, resident_bytes
from proxy.loop import Loop
from proxy.worker.freeheap import PERIOD_S, FreeHeap

def pass_time():
    clock.append(clock[-1] + PERIOD_S)
    for _ in range(2):
        loop.call_soon(lambda: None)
        loop.turn()

def buffers(count):
    return [bytes(200_000) + b"x" for _ in range(count)]

give_back_large_buffers(2 << 20)
clock = [1.0]
loop = Loop(lambda: clock[-1])
FreeHeap(loop, 0).start()
before = resident_bytes()
peak, gone = buffers(600), buffers(300)
pin = bytes(300_000)
del gone
pass_time()
amid = resident_bytes()
del peak
pass_time()
print(amid - before, resident_bytes() - before)
"""


def test_what_is_freed_after_memory_was_returned_amid_a_peak_is_returned_too() -> None:
    if not free_heap_bytes():
        not_possible_here("this C library has no mallinfo2")

    run = subprocess.run([sys.executable, "-c", DURING_A_PEAK], capture_output=True, text=True, check=True)

    amid, left = map(int, run.stdout.split())
    assert 100_000_000 < amid < 140_000_000
    assert left < 8_000_000
