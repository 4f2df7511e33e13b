"""The access log: which requests have a line, what it contains, and that writing it blocks nothing."""

import json
import os
import select
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.accesslog import AccessLogSettings
from proxy.accesslog.lines import LineMaker
from proxy.accesslog.writer import MAX_WAITING_BYTES, AccessLogWriter
from proxy.exchange.record import Record
from proxy.loop import Loop
from proxy.stats import Stats
from tests.proxy.loop.sides import until

MOMENT_S = 1_800_000_000.25
WAIT_S = 30.0


def record(**changes: Any) -> Record:
    usual: dict[str, Any] = {
        "began_s": MOMENT_S,
        "request_id": b"abc-1",
        "client": "192.0.2.7",
        "protocol": "HTTP/2",
        "door": ":443",
        "listener": "web",
        "route": "shop/cart",
        "rule": "",
        "rule_index": 2,
        "backend": "cart",
        "address": "10.0.0.1:80",
        "method": b"GET",
        "host": b"shop.example",
        "path": b"/cart",
        "status_code": 200,
        "request_bytes": 0,
        "response_bytes": 12,
        "duration_s": 0.5,
        "response_after_s": 0.25,
        "retries": 0,
        "reason": "",
    }
    return Record(**{**usual, **changes})


def line(fmt: str = "json", **changes: Any) -> str:
    return LineMaker(fmt).line(record(**changes)).decode()


def test_a_line_is_one_json_object_in_the_order_of_all_our_logs() -> None:
    text = line()

    assert text.endswith("}\n")
    entry = json.loads(text)
    assert list(entry)[:3] == ["time", "level", "msg"]
    assert entry["time"] == "2027-01-15T08:00:00.750Z"
    assert (entry["level"], entry["msg"]) == ("INFO", "request")
    assert (entry["status_code"], entry["duration_ms"], entry["response_after_ms"]) == (200, 500.0, 250.0)
    assert (entry["request_id"], entry["route"], entry["address"]) == ("abc-1", "shop/cart", "10.0.0.1:80")


def test_empty_fields_are_omitted_except_the_basic_ones() -> None:
    entry = json.loads(line(host=b"", path=b"", status_code=0, duration_s=0.0, rule_index=-1, backend="", address=""))

    assert {"method", "host", "path", "status_code", "duration_ms"} <= set(entry)
    assert not {"rule", "backend", "address", "reason", "detail", "retries"} & set(entry)


def test_a_rule_is_logged_by_its_name_or_its_index() -> None:
    assert json.loads(line())["rule"] == "rules[2]"
    assert json.loads(line(rule_index=0))["rule"] == "rules[0]"
    assert json.loads(line(rule="canary"))["rule"] == "canary"


def test_the_query_is_never_logged() -> None:
    assert "secret" not in line(path=b"/cart?token=secret")
    assert json.loads(line(path=b"/cart?token=secret"))["path"] == "/cart"


@pytest.mark.parametrize("status_code", [500, 503, 0])
def test_failures_are_logged_as_warnings(status_code: int) -> None:
    assert json.loads(line(status_code=status_code))["level"] == "WARNING"


@pytest.mark.parametrize("path", [b'/"\n{"level":"ERROR"}', b"/\xff\xfe", b"/\x1b[31m", "/é".encode()])
def test_no_path_can_forge_a_line(path: bytes) -> None:
    for fmt in ("json", "text"):
        assert line(fmt, path=path).count("\n") == 1
    assert json.loads(line(path=path))["path"].startswith("/")


@pytest.mark.parametrize("fmt", ["json", "text"])
def test_no_path_can_control_a_terminal_or_hide_its_line_from_the_journal(fmt: str) -> None:
    """Over HTTP/2 a path can have any octet: U+009B is the same control sequence introducer as ESC [."""
    told = line(fmt, path="/\x9b31m\x7fé".encode())

    assert told.rstrip("\n").isprintable()
    assert "x9b31m" in told
    assert "é" in told


def test_a_long_path_is_truncated() -> None:
    assert len(line(path=b"/" + b"x" * 100_000)) < 3000


def test_the_text_format_is_one_readable_line() -> None:
    text = line("text", status_code=502, reason="refused")

    assert text.startswith("2027-01-15T08:00:00.750Z WARNING request  status_code=502 method=GET host=shop.example")
    assert text.endswith("reason=refused\n")


# The writer.


class Pipe:
    def __init__(self, flags: int = 0) -> None:
        self.read, self.write = os.pipe2(flags | os.O_CLOEXEC)

    def lines(self, count: int) -> list[dict[str, Any]]:
        """The next lines; waits for them."""
        text = b""
        while text.count(b"\n") < count:
            assert select.select([self.read], [], [], 10.0)[0], f"seen {text!r}"
            text += os.read(self.read, 65536)
        return [json.loads(part) for part in text.splitlines()]

    def is_empty(self) -> bool:
        return not select.select([self.read], [], [], 0)[0]

    def close_reading(self) -> None:
        os.close(self.read)
        self.read = -1

    def close(self) -> None:
        for descriptor in (self.read, self.write):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


class Scene:
    """A writer and the loop that hands its records over."""

    def __init__(self, pipe: Pipe, mode: str = "all", sample: float = 1.0) -> None:
        self.loop = Loop()
        self.stats = Stats()
        self.writer = AccessLogWriter(self.loop, self.stats, AccessLogSettings(mode, sample), pipe.write)
        self.writer.start()

    def offer(self, record: Record) -> None:
        if self.writer.wants(record.status_code, record.has_failed):
            self.writer.write(record)

    def end_writing(self) -> None:
        """Without a deadline: a thread that outlived its test would write to a file that a later test has opened."""
        self.writer.close()
        if self.writer._thread.is_alive():
            self.writer._thread.join(WAIT_S)
        assert not self.writer._thread.is_alive()

    def close(self) -> None:
        self.end_writing()
        self.loop.close()


def test_records_are_written_soon_and_in_order(pipe: Pipe) -> None:
    scene = Scene(pipe)
    for number in range(300):
        scene.offer(record(status_code=200, response_bytes=number + 1))
    until(scene.loop, lambda: not pipe.is_empty())  # in the turn after the deadline

    assert [entry["response_bytes"] for entry in pipe.lines(300)] == list(range(1, 301))
    scene.close()


def test_a_record_is_written_soon_whether_or_not_others_follow(pipe: Pipe) -> None:
    scene = Scene(pipe)
    scene.offer(record())
    until(scene.loop, lambda: not pipe.is_empty())
    assert len(pipe.lines(1)) == 1

    def is_written_though_another_follows() -> bool:
        scene.offer(record())
        return not pipe.is_empty()

    until(scene.loop, is_written_though_another_follows)
    scene.close()


def test_closing_returns_when_the_pending_records_are_written(pipe: Pipe) -> None:
    """The process ends right after that."""
    scene = Scene(pipe)
    for _ in range(100):
        scene.offer(record())
    scene.writer.close()

    assert os.read(pipe.read, 65536).count(b"\n") == 100
    scene.close()


def test_lines_of_several_workers_do_not_mix_in_one_pipe() -> None:
    """Each write is small enough for a pipe to take it whole, and ends with a line."""
    pipe = Pipe(os.O_DIRECT)  # it keeps writes apart
    scene = Scene(pipe)
    for number in range(30):
        scene.offer(record(path=b"/" + b"p" * (370 * number % 1000)))
    scene.close()
    writes = []
    while not pipe.is_empty():
        writes.append(os.read(pipe.read, 65536))
    pipe.close()

    assert sum(each.count(b"\n") for each in writes) == 30
    assert all(each.endswith(b"\n") for each in writes)
    assert len(writes) < 15, "a write for each line would be slow"


@pytest.mark.parametrize(("mode", "wanted"), [("off", []), ("errors", [503, 0]), ("all", [200, 404, 503, 0])])
def test_the_mode_decides_which_requests_are_logged(pipe: Pipe, mode: str, wanted: list[int]) -> None:
    scene = Scene(pipe, mode)
    for status_code in (200, 404, 503, 0):
        scene.offer(record(status_code=status_code))
    scene.close()

    seen = [entry["status_code"] for entry in pipe.lines(len(wanted))] if wanted else []
    assert seen == wanted
    assert pipe.is_empty()


def test_a_failure_that_the_status_code_hides_is_logged_among_the_errors(pipe: Pipe) -> None:
    scene = Scene(pipe, "errors")
    scene.offer(record(reason="idle_timeout", has_failed=True))
    scene.close()

    (entry,) = pipe.lines(1)
    assert (entry["level"], entry["status_code"], entry["reason"]) == ("WARNING", 200, "idle_timeout")


def test_about_the_sampled_share_of_requests_is_logged(pipe: Pipe) -> None:
    scene = Scene(pipe, "all", 0.25)
    for _ in range(400):
        scene.offer(record(path=b"/" + b"x" * 10))
        scene.offer(record(status_code=500, path=b"/e"))
    # More than the pipe holds at once: read while it is written.
    until(scene.loop, lambda: not pipe.is_empty())
    entries = pipe.lines(400 + 40)
    scene.close()

    assert sum(entry["status_code"] == 500 for entry in entries) <= 400
    assert 40 <= sum(entry["status_code"] == 200 for entry in entries) <= 180


@pytest.mark.parametrize("text_bytes", [10, 16 * 1024])
def test_a_stalled_reader_costs_lines_but_neither_time_nor_memory(pipe: Pipe, text_bytes: int) -> None:
    scene = Scene(pipe)
    offered = 2 * MAX_WAITING_BYTES // (400 + text_bytes)
    tracemalloc.start()
    for _ in range(offered):
        scene.offer(record(path=b"/%b" % (b"x" * text_bytes)))
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert offered / 4 < scene.stats.access_log_dropped < offered
    assert held_bytes < 2 * MAX_WAITING_BYTES
    pipe.close_reading()  # so that the thread's blocked write fails
    scene.close()


@pytest.mark.parametrize("is_full", [True, False], ids=["full disk", "pipe that was closed"])
def test_lines_that_cannot_be_written_are_counted(pipe: Pipe, is_full: bool) -> None:
    pipe.close_reading()
    if is_full:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, pipe.write)
        os.close(full)
    scene = Scene(pipe)
    for _ in range(100):
        scene.offer(record())
    scene.end_writing()
    scene.loop.turn()

    assert scene.stats.access_log_dropped == 100
    scene.loop.close()
