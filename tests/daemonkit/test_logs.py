"""Log lines, literally."""

import fcntl
import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import hpack
import msgspec
import pytest

from daemonkit import logs
from daemonkit.secret import Secret

pytestmark = pytest.mark.usefixtures("logging_as_before")


class Journal(io.StringIO):
    """A log stream without a file descriptor."""

    def lines(self) -> list[str]:
        return self.getvalue().splitlines()

    def last(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self.lines()[-1])
        return line


@pytest.fixture
def journal() -> Journal:
    stream = Journal()
    logs.setup("debug", "json", stream)
    return stream


ours = logs.get_logger("tests.daemonkit")


def test_a_line_is_one_json_object_with_its_keys_in_order(journal: Journal) -> None:
    ours.warning("route refused", "no backend", route="ns/a", attempt=2)

    line = re.sub(r'"time":"[^"]+"', '"time":"T"', journal.lines()[0])
    assert line == (
        '{"time":"T","level":"WARNING","msg":"route refused","error":"no backend","route":"ns/a","attempt":2}'
    )


def test_the_time_is_rfc_3339_in_utc_with_milliseconds(journal: Journal) -> None:
    ours.info("x")

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", journal.last()["time"])


def test_fields_may_have_the_names_that_the_standard_library_reserves(journal: Journal) -> None:
    ours.info("x", name="n", args=(1,), module="m", message="text", process=1, thread="t", self=0)

    line = journal.last()
    assert (line["name"], line["args"], line["module"], line["message"]) == ("n", [1], "m", "text")
    assert (line["process"], line["thread"], line["self"]) == (1, "t", 0)


def test_fields_named_as_a_key_of_the_line_do_not_replace_it(journal: Journal) -> None:
    ours.info("x", time=1, level="l", msg="m", stack="s")

    line = journal.last()
    assert (line["msg"], line["level"]) == ("x", "INFO")
    assert "error" not in line
    assert (line["time_"], line["level_"], line["msg_"], line["stack_"]) == (1, "l", "m", "s")


def test_an_exception_is_logged_with_type_text_and_causes(journal: Journal) -> None:
    try:
        try:
            raise ConnectionRefusedError("refused")
        except OSError as error:
            raise RuntimeError("store away") from error
    except RuntimeError as error:
        ours.error("failed", error)

    line = journal.last()
    assert line["error"] == "RuntimeError: store away; caused by ConnectionRefusedError: refused"
    assert "stack" not in line


def test_what_an_exception_was_raised_in_place_of_is_not_logged(journal: Journal) -> None:
    """Where it would quote a secret, for example."""
    try:
        try:
            raise LookupError("hunter2")
        except LookupError:
            raise ValueError("not UTF-8 text") from None
    except ValueError as error:
        ours.warning("x", error)
        ours.exception("y")

    assert "hunter2" not in journal.getvalue()
    assert [json.loads(line)["error"] for line in journal.lines()] == ["ValueError: not UTF-8 text"] * 2


def test_a_cause_whose_text_the_exception_contains_is_not_repeated(journal: Journal) -> None:
    try:
        try:
            raise ConnectionRefusedError("refused")
        except OSError as error:
            raise RuntimeError(f"store away: {error}") from error
    except RuntimeError as error:
        ours.error("failed", error)

    assert journal.last()["error"] == "RuntimeError: store away: refused"


def test_the_text_of_an_errno_is_not_repeated_where_only_its_number_is_placed_differently(journal: Journal) -> None:
    try:
        try:
            raise OSError(98, "Address already in use")
        except OSError as error:
            raise OSError(98, "cannot listen on :80: Address already in use; choose another address") from error
    except OSError as error:
        ours.error("failed", error)

    wanted = "OSError: [Errno 98] cannot listen on :80: Address already in use; choose another address"
    assert journal.last()["error"] == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cannot read /run/token: No such file or directory", ""),
        ("cannot read it: No such file or directory", "; caused by FileNotFoundError: {cause}"),
    ],
)
def test_a_missing_file_is_named_once(journal: Journal, text: str, told: str) -> None:
    cause = FileNotFoundError(2, "No such file or directory", "/run/token")
    error = ValueError(text)
    error.__cause__ = cause

    ours.error("failed", error)

    assert journal.last()["error"] == f"ValueError: {text}{told.format(cause=cause)}"


def test_causes_of_any_kind_are_told(journal: Journal) -> None:
    error = RuntimeError("store away")
    error.__cause__ = LookupError("no such site")

    ours.error("failed", error)

    assert journal.last()["error"] == "RuntimeError: store away; caused by LookupError: no such site"


def test_an_error_without_a_text_is_told_by_its_kind(journal: Journal) -> None:
    error = RuntimeError("store away")
    error.__cause__ = TimeoutError()

    ours.error("failed", error)

    assert journal.last()["error"] == "RuntimeError: store away; caused by TimeoutError"


def test_a_long_error_is_cut(journal: Journal) -> None:
    ours.error("failed", ValueError("x" * 10_000))

    assert len(journal.last()["error"]) == 2048


def test_an_exception_line_has_the_stack(journal: Journal) -> None:
    try:
        raise KeyError("k")
    except KeyError:
        ours.exception("bug")

    assert journal.last()["error"] == "KeyError: 'k'"
    assert "test_logs.py" in journal.last()["stack"]
    assert len(journal.lines()) == 1


def test_the_middle_of_a_long_stack_is_left_out_so_that_journald_does_not_cut_the_line(journal: Journal) -> None:
    try:
        raise ValueError("x\n" * 50_000 + "end")
    except ValueError:
        ours.exception("bug")

    stack = journal.last()["stack"]
    assert stack.startswith("Traceback")
    assert stack.endswith("end")
    assert len(journal.lines()[0].encode()) < 48 * 1024


def test_a_short_stack_is_whole(journal: Journal) -> None:
    error = KeyError("k")

    ours.exception("bug", error)

    assert journal.last()["stack"] == "KeyError: 'k'"


def test_bound_fields_are_in_each_line_and_calls_may_override_them(journal: Journal) -> None:
    bound = ours.bind(server="api", attempt=1).bind(shard=3)

    bound.info("x", attempt=2)

    line = journal.last()
    assert (line["server"], line["attempt"], line["shard"]) == ("api", 2, 3)


def test_secrets_are_redacted_wherever_they_sit(journal: Journal) -> None:
    secret = Secret("hunter2")
    ours.info("x", key=secret, nested={"a": [secret, {"b": secret}]}, error=ValueError(secret))

    assert "hunter2" not in journal.getvalue()
    assert journal.last()["key"] == "<redacted>"


def test_values_that_json_cannot_hold_become_readable_text(journal: Journal) -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    class Colour(Enum):
        RED = "red"

    cycle: list[object] = []
    cycle.append(cycle)
    ours.info(
        "x",
        mute=Mute(),
        path=Path("/run/x"),
        until=datetime(2026, 1, 31, tzinfo=UTC),
        octets=b"\xff",
        nan=float("nan"),
        colour=Colour.RED,
        cycle=cycle,
        names={"b"},
        none=None,
    )

    line = journal.last()
    assert line["mute"] == "<Mute whose repr fails>"
    assert (line["path"], line["until"]) == ("/run/x", "2026-01-31T00:00:00+00:00")
    assert line["octets"] == "b'\\xff'"
    assert (line["nan"], line["colour"], line["names"], line["none"]) == ("nan", "red", ["b"], None)


def test_newlines_cannot_forge_a_line(journal: Journal) -> None:
    ours.info("a\nb", 'x\n{"level":"ERROR"}', field="c\r\nd\u2028e")

    assert len(journal.getvalue().strip("\n").split("\n")) == 1


def test_levels_below_the_chosen_one_are_left_out() -> None:
    stream = Journal()
    logs.setup("warning", "json", stream)

    ours.debug("a")
    ours.info("b")
    ours.warning("c")

    assert [json.loads(line)["msg"] for line in stream.lines()] == ["c"]


def test_third_party_loggers_go_through_the_same_formatter(journal: Journal) -> None:
    logging.getLogger("urllib3.connectionpool").warning("Retrying %s after\n%d", "host", 3)

    line = journal.last()
    assert (line["level"], line["msg"]) == ("WARNING", "Retrying host after\n3")
    assert line["logger"] == "urllib3.connectionpool"
    assert len(journal.lines()) == 1


def test_a_library_with_a_handler_of_its_own_logs_each_line_once(journal: Journal) -> None:
    elsewhere = Journal()
    logging.getLogger("werkzeug").addHandler(logging.StreamHandler(elsewhere))

    logs.setup("debug", "json", journal)
    logging.getLogger("werkzeug").warning("told")

    assert (len(journal.lines()), elsewhere.lines()) == (1, [])


def test_http2_header_fields_of_clients_are_logged_at_no_level(journal: Journal) -> None:
    """`hpack` logs each field that it decodes at debug."""
    logs.setup("debug", "json", journal)
    hpack.Decoder().decode(hpack.Encoder().encode([("authorization", "Bearer secret"), ("cookie", "session=secret")]))
    assert journal.lines() == []

    logging.getLogger("hpack.hpack").info("told")
    assert journal.last()["msg"] == "told"

    logs.setup("warning", "json", journal)
    logging.getLogger("hpack.hpack").info("not told")
    assert len(journal.lines()) == 1


def test_third_party_exceptions_keep_their_stack_and_bad_format_strings_do_not_raise(journal: Journal) -> None:
    try:
        raise OSError("disk")
    except OSError:
        logging.getLogger("cheroot").critical("failed", exc_info=True)
    assert (journal.last()["error"], journal.last()["level"]) == ("OSError: disk", "ERROR")
    assert "Traceback" in journal.last()["stack"]

    logging.getLogger("requests").info("%d", "no number")
    assert "no number" in journal.last()["msg"]


def test_warnings_go_through_the_same_formatter(journal: Journal) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logs.setup("debug", "json", journal)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)

    assert journal.last()["level"] == "WARNING"
    assert journal.last()["logger"] == "py.warnings"
    assert "DeprecationWarning: old thing" in journal.last()["msg"]


def test_the_text_format_is_one_readable_line() -> None:
    stream = Journal()
    logs.setup("debug", "text", stream)

    ours.warning("route refused", "no\nbackend", route="ns/a", count=2, empty="", quoted='say "x"', nested={"a": 1})

    fields = 'route=ns/a count=2 empty="" quoted="say \\"x\\"" nested={"a": 1}'
    assert stream.lines()[0][24:] == f' WARNING route refused  error="no\\nbackend" {fields}'
    assert len(stream.lines()) == 1


def test_a_library_s_message_in_the_text_format_neither_forges_a_line_nor_controls_a_terminal() -> None:
    stream = Journal()
    logs.setup("debug", "text", stream)

    logging.getLogger("urllib3").warning("refused:\n2026-01-01T00:00:00.000Z ERROR forged \x1b[2J\u2028")

    (line,) = stream.lines()
    assert line.isprintable()
    assert r"refused:\n2026" in line
    assert r"\x1b[2J\u2028" in line

    ours.warning("zurück\ngewiesen")
    assert stream.lines()[-1].endswith(r" WARNING zurück\ngewiesen")


def test_a_stack_in_the_text_format_is_indented_so_that_it_forges_no_line() -> None:
    stream = Journal()
    logs.setup("debug", "text", stream)

    ours.exception("bug", ValueError("2026-01-01T00:00:00.000Z ERROR forged\n2026-01-01T00:00:00.000Z ERROR forged"))

    assert len(stream.lines()) > 1
    assert all(line.startswith("    | ") for line in stream.lines()[1:])


def test_a_stack_in_the_text_format_does_not_control_a_terminal() -> None:
    stream = Journal()
    logs.setup("debug", "text", stream)

    ours.exception("bug", ValueError("cleared: \x1b[2J"))

    assert all(line.isprintable() for line in stream.lines())
    assert stream.lines()[-1].endswith(r"cleared: \x1b[2J")


def test_setting_up_again_replaces_the_stream() -> None:
    first, second = Journal(), Journal()
    logs.setup("info", "json", first)
    logs.setup("info", "json", second)

    ours.info("x")

    assert (len(first.lines()), len(second.lines())) == (0, 1)


def test_a_closed_stream_a_broken_pipe_and_a_full_disk_never_raise() -> None:
    closed = Journal()
    logs.setup("info", "json", closed)
    closed.close()
    ours.info("x")

    near, far = socket.socketpair()
    far.close()
    with near, near.makefile("w") as pipe:
        logs.setup("info", "json", pipe)
        ours.info("x")

    with open("/dev/full", "w") as full:  # noqa: PTH123
        logs.setup("info", "json", full)
        ours.info("x")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_a_process_with_a_full_or_without_stderr_ends_well(redirection: str) -> None:
    program = "from daemonkit import logs; logs.setup(); logs.get_logger('x').error('m', ValueError('v'))"
    command = f'"{sys.executable}" -c "{program}" {redirection}'

    assert subprocess.run(["sh", "-c", command], timeout=20, check=False).returncode == 0


@pytest.mark.timeout(30)
def test_lines_lost_to_a_full_pipe_are_counted_in_the_log_once_it_has_room() -> None:
    read, write = os.pipe()
    with open(write, "w") as stream:  # noqa: PTH123
        logs.setup("info", "json", stream)
        for _ in range(10_000):
            ours.info("x")
        seen = os.read(read, 1 << 20).splitlines()
        ours.info("y")
        lost, last = (json.loads(line) for line in os.read(read, 1 << 20).splitlines())
        ours.info("z")
        (after,) = (json.loads(line) for line in os.read(read, 1 << 20).splitlines())
    os.close(read)

    assert after["msg"] == "z", "the loss is told once"
    assert (lost["level"], lost["msg"], last["msg"]) == ("WARNING", "log lines were lost", "y")
    assert lost["count"] == 10_000 - len(seen)


@pytest.mark.timeout(30)
def test_a_loss_is_counted_once_even_if_the_line_after_it_is_lost_too() -> None:
    read, write = os.pipe()
    with open(write, "w") as stream:  # noqa: PTH123
        capacity_bytes = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        logs.setup("info", "json", stream)
        for _ in range(10_000):
            ours.info("x")
        seen = os.read(read, 1 << 20).splitlines()
        ours.info("longer than the pipe", text="y" * 2 * capacity_bytes)
        first, _ = os.read(read, 1 << 20).splitlines()
        ours.info("z")
        _, second, last = os.read(read, 1 << 20).splitlines()
    os.close(read)

    assert json.loads(first)["count"] == 10_000 - len(seen)
    assert (json.loads(second)["count"], json.loads(last)["msg"]) == (1, "z")


def test_text_that_is_not_utf_8_is_escaped_so_that_strict_json_parsers_accept_it(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        logs.setup("info", "json", stream)
        ours.info("x", ValueError("half \ud83d"), path=os.fsdecode(b"\xff"), umlaut="ü", emoji="\U0001f600")

    line = msgspec.json.decode((tmp_path / "log").read_bytes())
    assert (line["error"], line["path"]) == ("ValueError: half \\ud83d", "\\udcff")
    assert (line["umlaut"], line["emoji"]) == ("ü", "\U0001f600")


def test_control_characters_are_escaped_and_decode_to_themselves(journal: Journal) -> None:
    """journalctl shows `blob data` in the place of a line that has a control character."""
    controls = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    ours.info("x", name=controls)

    (line,) = journal.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["name"] == controls


def test_a_rate_limited_logger_keeps_level_error_and_fields(journal: Journal) -> None:
    limited = ours.every(10)

    for _ in range(2):
        limited.info("said", client="c")
        limited.warning("warned", "why", client="c")
        limited.error("failed", ValueError("how"))

    lines = [json.loads(line) for line in journal.lines()]
    assert [(line["level"], line["msg"], line.get("error"), line.get("client")) for line in lines] == [
        ("INFO", "said", None, "c"),
        ("WARNING", "warned", "why", "c"),
        ("ERROR", "failed", "ValueError: how", None),
    ]


def test_a_rate_limited_logger_logs_each_message_once_a_period_and_counts_the_rest(journal: Journal) -> None:
    now = [100.0]
    limited = ours.every(10, clock=lambda: now[0])

    for _ in range(4):
        limited.warning("refused", client="c")
    limited.error("other")
    now[0] += 10
    limited.warning("refused", client="c")
    now[0] += 10
    limited.warning("refused", client="c")

    lines = [json.loads(line) for line in journal.lines()]
    assert [(line["msg"], line.get("suppressed")) for line in lines] == [
        ("refused", None),
        ("other", None),
        ("refused", 3),
        ("refused", None),
    ]


@pytest.mark.parametrize(
    ("log", "priority"),
    [(ours.debug, "<7>"), (ours.info, "<6>"), (ours.warning, "<4>"), (ours.error, "<3>")],
    ids=["debug", "info", "warning", "error"],
)
def test_in_systemd_s_journal_a_line_has_its_priority(
    monkeypatch: pytest.MonkeyPatch, log: Callable[[str], None], priority: str
) -> None:
    read, write = os.pipe()
    status = os.fstat(write)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    with os.fdopen(write, "w", encoding="utf-8") as stream, os.fdopen(read, "rb") as reader:
        logs.setup("debug", "json", stream)
        log("x")

        assert reader.readline().startswith(priority.encode() + b"{")


def test_a_line_that_does_not_go_to_the_journal_has_no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a unit with `StandardError=file:...`, or in a child process whose stderr is another file."""
    read, write = os.pipe()
    monkeypatch.setenv("JOURNAL_STREAM", "8:4711")
    with os.fdopen(write, "w", encoding="utf-8") as stream, os.fdopen(read, "rb") as reader:
        logs.setup("debug", "json", stream)
        ours.info("x")

        assert reader.readline().startswith(b"{")
