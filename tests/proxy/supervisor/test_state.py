"""The last good document outlives the process, where a state directory is given; and the file of --config."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from daemonkit.logformat import line_of
from proxy.supervisor import keeping
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.loaded import Loaded
from proxy.supervisor.sockets import ListeningSockets
from proxy.supervisor.state import NAME, StateFile
from tests.proxy.site import DEADLINE_S, TOKEN, Proxy, ask, eventually, fixed, reserved_port
from tests.support.oddfiles import in_its_place


def test_a_restarted_proxy_serves_the_last_document_with_its_version(tmp_path: Path) -> None:
    with reserved_port() as port:
        with Proxy("--state-dir", str(tmp_path)) as proxy:
            proxy.use({"version": 41, **fixed(port, "kept")})
            proxy.put({"version": 42, "routes": [{"hostnames": ["NO"]}]})
        written = (tmp_path / NAME).stat().st_ino

        with Proxy("--state-dir", str(tmp_path)) as proxy:
            eventually(lambda: proxy.readiness() == (200, "ready"), "ready without a PUT")
            assert ask(port).text == "kept"
            assert proxy.get().json()["version"] == 41
            assert proxy.use({"version": 41, **fixed(port, "kept")}) == {"version": 41, "changed": False}
            assert (tmp_path / NAME).stat().st_ino == written
            assert proxy.use(fixed(port, "next"))["version"] == 42


def test_after_sigkill_the_last_acknowledged_document_is_restored(tmp_path: Path) -> None:
    with reserved_port() as port:
        proxy = Proxy("--state-dir", str(tmp_path)).start()
        proxy.use(fixed(port, "one"))
        proxy.use(fixed(port, "two"))
        proxy.kill()

        with Proxy("--state-dir", str(tmp_path)) as again:
            eventually(lambda: again.readiness()[0] == 200, "ready")
            assert ask(port).text == "two"


def test_the_kept_document_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with reserved_port() as port, Proxy("--state-dir", str(tmp_path / "new")) as proxy:
        proxy.use(fixed(port))

        (kept,) = (tmp_path / "new").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def run_in_thread(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def is_replaced(configuration: Configuration, before: Loaded | None) -> bool:
    return configuration.loaded is not before


class HangingDisk:
    """fsync blocks until `answers` is set, at most for twice the deadline of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_asked, self.answers = threading.Event(), threading.Event()
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._hang)

    def _hang(self, descriptor: int) -> None:
        self.is_asked.set()
        assert self.answers.wait(2 * DEADLINE_S)
        self._sync(descriptor)


def document_file(directory: Path, name: str) -> Path:
    path = directory / name
    path.write_text(json.dumps({"routes": [{"name": name, "rules": [{"respond": {"statusCode": 200}}]}]}))
    return path


def test_a_hanging_disk_does_not_block_a_stop_and_gets_the_last_document_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HangingDisk(monkeypatch)
    monkeypatch.setattr(keeping, "KEEP_S", 2 * DEADLINE_S)
    configuration = Configuration(Fleet([]), ListeningSockets(0), StateFile(tmp_path / "state"))
    threads = []
    for name in ("first", "second"):
        path = document_file(tmp_path, name)
        before = configuration.loaded
        threads.append(run_in_thread(partial(configuration.load_file, path)))
        eventually(partial(is_replaced, configuration, before), f"the {name} in use")
        assert disk.is_asked.wait(DEADLINE_S)

    stop = run_in_thread(configuration.close_sockets)
    stop.join(DEADLINE_S / 2)
    is_stopped = not stop.is_alive()
    disk.answers.set()
    for thread in (stop, *threads):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()

    assert is_stopped
    kept = json.loads((tmp_path / "state" / NAME).read_text())
    assert (kept["version"], kept["routes"][0]["name"]) == (2, "second")


def test_only_one_document_waits_for_a_hanging_disk_and_the_last_one_is_kept_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Four documents that waited without end used up the limit of concurrent ones: the next ones were refused."""
    disk = HangingDisk(monkeypatch)
    monkeypatch.setattr(keeping, "KEEP_S", 0.1)
    configuration = Configuration(Fleet([]), ListeningSockets(0), StateFile(tmp_path / "state"))
    first = run_in_thread(partial(configuration.load_file, document_file(tmp_path, "first")))
    assert disk.is_asked.wait(DEADLINE_S)
    others = [run_in_thread(partial(configuration.load_file, document_file(tmp_path, name))) for name in "abcd"]

    for other in others:
        other.join(DEADLINE_S)
    are_done = [not other.is_alive() for other in others]
    is_kept, loaded = configuration.is_kept, configuration.loaded
    disk.answers.set()
    first.join(DEADLINE_S)

    assert are_done == [True] * 4
    assert is_kept is False
    warnings = [line for line in map(line_of, caplog.records) if "cannot keep the document" in str(line["msg"])]
    assert [line["error"] for line in warnings] == [
        "TimeoutError: the disk has not finished the previous write within 0.1 s"
    ] * 4
    assert loaded is not None
    assert json.loads((tmp_path / "state" / NAME).read_text()) == json.loads(loaded.content.encode(5))
    assert configuration.is_kept


def test_a_document_that_the_disk_gets_just_when_its_wait_is_given_up_counts_as_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as not kept until the next document came, perhaps days later."""
    disk = HangingDisk(monkeypatch)
    monkeypatch.setattr(keeping, "KEEP_S", 0.1)

    class Recovering(StateFile):
        def give_up(self, after_s: float) -> None:
            disk.answers.set()
            first.join(DEADLINE_S)
            super().give_up(after_s)

    configuration = Configuration(Fleet([]), ListeningSockets(0), Recovering(tmp_path / "state"))
    first = run_in_thread(partial(configuration.load_file, document_file(tmp_path, "first")))
    assert disk.is_asked.wait(DEADLINE_S)

    configuration.load_file(document_file(tmp_path, "second"))

    assert not first.is_alive()
    assert json.loads((tmp_path / "state" / NAME).read_text())["routes"][0]["name"] == "second"
    assert configuration.is_kept


def test_a_disk_that_hangs_at_the_start_does_not_block_a_document_and_gets_it_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, answers, makes = threading.Event(), threading.Event(), tempfile.TemporaryFile

    def hang(**where: Path) -> object:
        is_asked.set()
        assert answers.wait(2 * DEADLINE_S)
        return makes(dir=where["dir"])

    monkeypatch.setattr(tempfile, "TemporaryFile", hang)
    monkeypatch.setattr(keeping, "KEEP_S", 0.1)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / NAME).write_bytes(document_file(tmp_path, "before").read_bytes())
    configuration = Configuration(Fleet([]), ListeningSockets(0), StateFile(tmp_path / "state"))
    configuration.open_state(restores=True)
    assert is_asked.wait(DEADLINE_S)

    loading = run_in_thread(partial(configuration.load_file, document_file(tmp_path, "meanwhile")))
    loading.join(DEADLINE_S)
    is_loaded, is_kept = not loading.is_alive(), configuration.is_kept
    answers.set()
    loading.join(DEADLINE_S)

    def kept() -> object:
        return json.loads((tmp_path / "state" / NAME).read_text())["routes"][0]["name"]

    eventually(lambda: kept() == "meanwhile", "the disk has it")
    eventually(lambda: bool(configuration.is_kept), "that is known")
    assert (is_loaded, is_kept) == (True, False)
    assert configuration.loaded is not None
    assert json.loads(configuration.loaded.content.encode(1))["routes"][0]["name"] == "meanwhile"


def test_the_kept_document_is_loaded_even_if_no_thread_can_be_started(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(document_file(tmp_path, "kept").read_bytes())
    configuration = Configuration(Fleet([]), ListeningSockets(0), StateFile(tmp_path))
    # No thread can be started: no address space has room for such a stack.
    usual = threading.stack_size(1 << 60)
    try:
        configuration.open_state(restores=True)
    finally:
        threading.stack_size(usual)

    assert configuration.loaded is not None
    assert json.loads(configuration.loaded.content.encode(1))["routes"][0]["name"] == "kept"


_HANGS = """
import os
_open = os.open
def _open_when_the_disk_answers(path, *more, **named):
    if str(path) == os.environ["KEPT"]:
        os.close(_open(os.environ["DISK"], os.O_RDONLY))
    return _open(path, *more, **named)
os.open = _open_when_the_disk_answers
"""
"""As `sitecustomize`: the kept document cannot be opened until somebody opens the pipe DISK for writing."""


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    os.mkfifo(path)
    return path


def on_hanging(disk: Path, kept: Path) -> Proxy:
    """A proxy whose state directory hangs."""
    customized = disk.with_name("customized")
    customized.mkdir()
    (customized / "sitecustomize.py").write_text(_HANGS)
    env = {"PYTHONPATH": str(customized), "DISK": str(disk), "KEPT": str(kept)}
    return Proxy("--state-dir", str(kept.parent), env=env)


def test_a_proxy_whose_disk_hangs_at_the_start_answers_and_serves_the_kept_document_later(
    tmp_path: Path, disk: Path
) -> None:
    """It neither answered nor logged anything until then."""
    kept = tmp_path / NAME
    with reserved_port() as port, on_hanging(disk, kept) as proxy:
        kept.write_text(json.dumps({"version": 41, **fixed(port, "kept")}))
        line = proxy.wait_for_message("the state directory does not answer, starting without it until it does")
        assert (line["level"], line["path"]) == ("WARNING", str(tmp_path))
        eventually(lambda: proxy.readiness() == (503, "no configuration is loaded yet"), "an answer")

        os.close(os.open(disk, os.O_WRONLY | os.O_NONBLOCK))  # the reader waits for a writer

        eventually(lambda: proxy.readiness() == (200, "ready"), "ready without a PUT")
        assert ask(port).text == "kept"
        assert proxy.get().json()["version"] == 41


def test_a_kept_document_that_the_disk_yields_during_a_stop_opens_no_port(tmp_path: Path) -> None:
    state, sockets = StateFile(tmp_path), ListeningSockets(1)
    configuration = Configuration(Fleet([]), sockets, state)
    with reserved_port() as port:
        assert state.write(json.dumps({"version": 41, **fixed(port, "kept")}).encode())
        configuration.close_sockets()

        configuration.open_state(restores=True)

        assert (configuration.loaded, sockets.groups) == (None, {})


def test_a_proxy_whose_disk_hangs_at_the_start_can_be_stopped(tmp_path: Path, disk: Path) -> None:
    with on_hanging(disk, tmp_path / NAME) as proxy:
        proxy.wait_for_message("the state directory does not answer, starting without it until it does")
        eventually(lambda: proxy.readiness()[0] == 503, "an answer")

        assert proxy.stop() == 0


@in_its_place
def test_something_else_in_place_of_the_kept_document_is_logged_and_replaced(
    tmp_path: Path, put_odd_file: Callable[[Path], None]
) -> None:
    """It waited for a pipe, and read whatever there was into its memory."""
    put_odd_file(tmp_path / NAME)
    with reserved_port() as port:
        with Proxy("--state-dir", str(tmp_path)) as proxy:
            line = proxy.wait_for_message("cannot read the state directory, starting without its document")
            assert (line["level"], line["path"]) == ("WARNING", str(tmp_path / NAME))
            proxy.use(fixed(port, "kept"))

        with Proxy("--state-dir", str(tmp_path)) as again:
            eventually(lambda: again.readiness() == (200, "ready"), "ready without a PUT")
            assert ask(port).text == "kept"


def test_a_state_directory_that_cannot_be_written_causes_a_warning_only(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with reserved_port() as port, Proxy("--state-dir", str(blocked / "below")) as proxy:
        proxy.use(fixed(port, "served"))

        assert ask(port).text == "served"
        proxy.wait_for_log(
            lambda line: line.get("level") == "WARNING" and "cannot keep the document" in line["msg"], "the warning"
        )
        assert proxy.metric("tunnelgw_proxy_config_kept") == 0


def test_a_state_directory_that_cannot_be_written_is_logged_before_the_first_document(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with Proxy("--state-dir", str(blocked / "below")) as proxy:
        line = proxy.wait_for_message("cannot write the state directory: no document will be kept")

        assert line["path"] == str(blocked / "below")


def test_a_file_in_place_of_the_state_directory_is_logged_once_with_the_remedy(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    remedy = "no directory can be made there: choose another --state-dir (PROXY_STATE_DIR)"
    with reserved_port() as port, Proxy("--state-dir", str(taken)) as proxy:
        told = proxy.wait_for_message("cannot write the state directory: no document will be kept")
        assert told["error"] == f"FileExistsError: [Errno 17] File exists: '{taken}'; {remedy}"

        proxy.use(fixed(port))

        unkept = proxy.wait_for_message(
            "cannot keep the document: a restart would begin with the one kept before, if any"
        )
        assert unkept["error"].endswith(f"; {remedy}")
        assert not any("cannot read the state directory" in line["msg"] for line in proxy.log)


def test_a_document_that_could_not_be_kept_leaves_the_one_before_for_the_restart(tmp_path: Path) -> None:
    state, aside = tmp_path / "state", tmp_path / "aside"
    with reserved_port() as port:
        with Proxy("--state-dir", str(state)) as proxy:
            proxy.use(fixed(port, "kept"))
            state.rename(aside)
            state.touch()
            proxy.use(fixed(port, "not kept"))
            proxy.wait_for_message("cannot keep the document: a restart would begin with the one kept before, if any")
        state.unlink()
        aside.rename(state)

        with Proxy("--state-dir", str(state)) as again:
            eventually(lambda: again.readiness()[0] == 200, "ready")
            assert ask(port).text == "kept"


def test_a_document_that_could_not_be_kept_is_kept_when_it_is_put_again(tmp_path: Path) -> None:
    state, aside = tmp_path / "state", tmp_path / "aside"
    with reserved_port() as port, Proxy("--state-dir", str(state)) as proxy:
        proxy.use({"version": 1, **fixed(port, "kept")})
        state.rename(aside)
        state.touch()
        proxy.use({"version": 2, **fixed(port, "next")})
        assert proxy.metric("tunnelgw_proxy_config_kept") == 0
        state.unlink()
        aside.rename(state)

        assert proxy.use({"version": 2, **fixed(port, "next")}) == {"version": 2, "changed": False}

        assert proxy.metric("tunnelgw_proxy_config_kept") == 1
        assert json.loads((state / NAME).read_text())["version"] == 2


@pytest.fixture
def retrying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Configuration], None]]:
    """Runs `retry_keeping`, without the pauses of a minute."""
    monkeypatch.setattr(keeping, "RETRY_S", 0.01)
    stop, threads = threading.Event(), []
    yield lambda configuration: threads.append(run_in_thread(lambda: configuration.retry_keeping(stop)))
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_a_document_that_could_not_be_kept_is_kept_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, retrying: Callable[[Configuration], None]
) -> None:
    """It was not kept, and the alert about that stayed, until the next document came, perhaps days later."""
    state = tmp_path / "state"
    state.touch()
    configuration = Configuration(Fleet([]), ListeningSockets(0), StateFile(state))
    configuration.load_file(document_file(tmp_path, "first"))
    retrying(configuration)
    assert configuration.is_kept is False

    state.unlink()

    eventually(lambda: bool(configuration.is_kept), "it is kept")
    assert json.loads((state / NAME).read_text())["routes"][0]["name"] == "first"
    assert [line_of(record)["msg"] for record in caplog.records if record.levelname == "WARNING"] == [
        "cannot keep the document: a restart would begin with the one kept before, if any"
    ]


def test_a_state_directory_counts_as_writable_once_it_is(
    tmp_path: Path, retrying: Callable[[Configuration], None]
) -> None:
    state = tmp_path / "state"
    state.touch()
    configuration = Configuration(Fleet([]), ListeningSockets(0), StateFile(state))
    configuration.open_state(restores=True)
    assert configuration.is_kept is False
    retrying(configuration)

    state.unlink()

    eventually(lambda: bool(configuration.is_kept), "it is writable")


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"routes":[{"hostnames":["NO"]}]}', b'{"of_a_newer_version":1}', b"\x00" * 100]
)
def test_an_unusable_kept_document_is_logged_and_left_unchanged(tmp_path: Path, content: bytes) -> None:
    kept = tmp_path / "document.json"
    kept.write_bytes(content)
    with Proxy("--state-dir", str(tmp_path)) as proxy:
        proxy.wait_for_message("the document in the state directory cannot be used, starting without it")
        assert proxy.readiness()[0] == 503
        assert kept.read_bytes() == content


def test_the_file_of_config_is_loaded_at_the_start_and_again_on_sighup(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    with reserved_port() as port:
        file.write_text(json.dumps(fixed(port, "one")))
        with Proxy("--config", str(file), "--workers", "2") as proxy:
            eventually(lambda: proxy.readiness()[0] == 200, "ready")
            assert ask(port).text == "one"

            file.write_text(json.dumps(fixed(port, "two")))
            proxy.send_signal(signal.SIGHUP)

            proxy.wait_for_message("configuration loaded", document_version=2)
            eventually(lambda: {ask(port).text for _ in range(8)} == {"two"}, "the new document is served")


def test_sighup_with_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    with reserved_port() as port:
        file.write_text(json.dumps(fixed(port, "one")))
        with Proxy("--config", str(file)) as proxy:
            proxy.address("config")
            file.write_text('{"routes": [{"hostnames": ["NO"]}]}')
            proxy.send_signal(signal.SIGHUP)

            line = proxy.wait_for_message("cannot load the configuration file, the previous document stays in use")

            assert "routes[0].hostnames[0]" in line["error"]
            assert ask(port).text == "one"
            assert proxy.metric("tunnelgw_proxy_config_refused_total") == 1

            file.unlink()
            proxy.send_signal(signal.SIGHUP)
            eventually(lambda: proxy.metric("tunnelgw_proxy_config_refused_total") == 2, "the absent file is counted")


def test_sighup_without_a_file_is_ignored() -> None:
    with Proxy() as proxy:
        proxy.address("config")
        proxy.send_signal(signal.SIGHUP)

        assert proxy.use({"routes": []})["version"] == 1


@contextlib.contextmanager
def held_at(fifo: Path) -> Iterator[None]:
    """Within the context, the proxy that reads its token from `fifo` is blocked; it gets the token at the end."""
    writers: list[int] = []

    def is_read() -> bool:
        with contextlib.suppress(OSError):
            # It cannot be opened for writing until it is open for reading.
            writers.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writers)

    eventually(is_read, "the proxy reads its token")
    yield
    os.write(writers[0], TOKEN.encode())
    os.close(writers[0])


@pytest.fixture
def token_fifo(tmp_path: Path) -> Path:
    fifo = tmp_path / "token"
    os.mkfifo(fifo)
    return fifo


def test_sighup_while_the_proxy_starts_does_not_end_it(token_fifo: Path) -> None:
    with Proxy(token=None, env={"PROXY_AUTH_TOKEN_FILE": str(token_fifo)}) as proxy:
        with held_at(token_fifo):
            proxy.send_signal(signal.SIGHUP)

        assert proxy.use({"routes": []})["version"] == 1


def test_sighup_while_the_proxy_starts_has_its_file_read_again(token_fifo: Path, tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    file.write_text('{"routes": []}')
    with Proxy("--config", str(file), token=None, env={"PROXY_AUTH_TOKEN_FILE": str(token_fifo)}) as proxy:
        with held_at(token_fifo):
            proxy.send_signal(signal.SIGHUP)

        proxy.wait_for_message("configuration file is unchanged")


def test_the_file_of_config_wins_over_the_kept_document_and_a_put_replaces_both(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    state = tmp_path / "state"
    with reserved_port() as port:
        with Proxy("--state-dir", str(state)) as proxy:
            proxy.use({"version": 9, **fixed(port, "kept")})
        file.write_text(json.dumps(fixed(port, "from file")))

        with Proxy("--state-dir", str(state), "--config", str(file)) as proxy:
            eventually(lambda: proxy.readiness()[0] == 200, "ready")
            assert ask(port).text == "from file"
            proxy.use(fixed(port, "from put"))
            assert ask(port).text == "from put"


def test_a_file_that_cannot_be_used_ends_the_start_with_all_its_problems(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    file.write_text('{"routes": [{"hostnames": ["A"]}, {"hostnames": ["B"]}]}')
    proxy = Proxy("--config", str(file)).start()

    assert proxy.wait(DEADLINE_S) == 2
    assert any(f"{file}: routes[0].hostnames[0]" in line for line in proxy.lines)
    assert any(f"{file}: routes[1].hostnames[0]" in line for line in proxy.lines)


def test_a_config_file_that_does_not_exist_is_named_in_the_error(tmp_path: Path) -> None:
    proxy = Proxy("--config", str(tmp_path / "none.json")).start()

    assert proxy.wait(DEADLINE_S) == 2
    assert any("none.json" in line and "No such file" in line for line in proxy.lines)
