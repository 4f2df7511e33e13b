"""Workers die, hang or cannot start; the others, and their successors, serve."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import shutil
import signal
import site
import socket
import sys
import threading
import time
import venv
from functools import partial
from pathlib import Path

import msgspec
import pytest
import requests

from tests.proxy.site import DEADLINE_S, Backend, Proxy, ask, eventually, fixed, forwarding, reserved_port
from tests.support.limits import no_memory_files, open_files_limited
from tests.support.ports import LOOPBACK
from tests.support.process import REPOSITORY, Process

RUN = ["run", "--workers", "1", "--config-addr", "127.0.0.1:0", "--allow-unauthenticated-config"]


def is_gone(pid: int) -> bool:
    """Ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_killed_worker_is_replaced_and_its_successor_serves_the_last_document() -> None:
    with reserved_port() as port, Proxy() as proxy:
        proxy.use(fixed(port, "one"))
        proxy.use(fixed(port, "two"))

        os.kill(proxy.worker_pid(), signal.SIGKILL)

        line = proxy.wait_for_message("worker died, starting another")
        assert (line["error"], line["worker"]) == ("signal SIGKILL", 0)
        # Connections wait in the queue of the listening socket, which the supervisor keeps open.
        assert ask(port).text == "two"
        assert proxy.metric("tunnelgw_proxy_worker_restarts_total", worker="0") == 1


def test_what_a_dead_worker_counted_stays_counted() -> None:
    with reserved_port() as port, Proxy() as proxy:
        proxy.use(fixed(port))
        for _ in range(5):
            ask(port)
        assert proxy.metric("tunnelgw_proxy_requests_total", status_class="2xx") == 5

        os.kill(proxy.worker_pid(), signal.SIGKILL)
        proxy.worker_pid(nth=2)
        ask(port)

        assert proxy.metric("tunnelgw_proxy_requests_total", status_class="2xx") == 6
        assert proxy.metric("tunnelgw_proxy_connections_accepted_total") == 6


def test_only_the_requests_of_the_killed_worker_are_lost() -> None:
    with Backend() as backend, reserved_port() as port, Proxy("--workers", "2") as proxy:
        proxy.use(forwarding(port, backend.address))
        pids = {0: proxy.worker_pid(0), 1: proxy.worker_pid(1)}
        stop = threading.Event()
        outcomes: dict[bool, int] = {True: 0, False: 0}
        lock = threading.Lock()

        def load() -> None:
            while not stop.is_set():
                is_well = False
                with contextlib.suppress(requests.RequestException):
                    is_well = ask(port).status_code == 200
                with lock:
                    outcomes[is_well] += 1

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: outcomes[True] > 100, "load")
            os.kill(pids[0], signal.SIGKILL)
            proxy.worker_pid(0, nth=2)
            before = outcomes[True]
            eventually(lambda: outcomes[True] > before + 100, "load after the death")
        finally:
            stop.set()
            for thread in threads:
                thread.join()

        # Each of the four had at most one request at the worker that died.
        assert outcomes[False] <= 4
        assert not is_gone(pids[1])
        assert proxy.metric("tunnelgw_proxy_worker_restarts_total", worker="1") == 0


def test_a_document_that_arrives_while_a_worker_is_dead_reaches_its_successor() -> None:
    with reserved_port() as port, Proxy("--workers", "2") as proxy:
        proxy.use(fixed(port, "one"))
        os.kill(proxy.worker_pid(0), signal.SIGKILL)
        proxy.use(fixed(port, "two"))

        proxy.worker_pid(0, nth=2)

        eventually(lambda: proxy.metric("tunnelgw_proxy_worker_config_version", worker="0") == 2, "served by both")
        assert {ask(port).text for _ in range(16)} == {"two"}


def test_workers_serve_on_without_memory_for_a_new_document_and_get_it_once_there_is_some() -> None:
    with reserved_port() as port, Proxy("--workers", "2") as proxy, concurrent.futures.ThreadPoolExecutor(1) as pool:
        proxy.use(fixed(port, "one"))
        with no_memory_files(proxy.pid):
            put = pool.submit(proxy.use, fixed(port, "two"))
            proxy.wait_for_message("cannot hand the document to a worker, trying again")
            assert {ask(port).text for _ in range(8)} == {"one"}

        assert put.result(DEADLINE_S)["version"] == 2
        assert {ask(port).text for _ in range(8)} == {"two"}
        assert [proxy.metric("tunnelgw_proxy_worker_restarts_total", worker=worker) for worker in "01"] == [0, 0]


def test_a_worker_without_descriptors_for_a_document_keeps_its_clients_and_takes_it_later() -> None:
    with contextlib.ExitStack() as stack:
        port, new = (stack.enter_context(reserved_port()) for _ in range(2))
        proxy = stack.enter_context(Proxy())
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        proxy.use(fixed(port, "one"))
        # More than the descriptors that it holds in reserve, so that none is left under the limit below.
        clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S) for _ in range(80)]
        for client in clients:
            stack.callback(client.close)
        assert {answer_to(client) for client in clients} == {b"one"}

        with open_files_limited(proxy.worker_pid(), 1):
            document = fixed(port, "two")
            document["listeners"].append({"name": "new", "address": "127.0.0.1", "port": new})
            put = pool.submit(proxy.use, document)
            proxy.wait_for_message("no descriptor or memory to receive the supervisor's message")
            assert {answer_to(client) for client in clients} == {b"one"}

        assert put.result(DEADLINE_S)["version"] == 2
        assert (ask(port).text, ask(new).text) == ("two", "two")
        assert {answer_to(client) for client in clients} == {b"two"}
        assert proxy.metric("tunnelgw_proxy_worker_restarts_total", worker="0") == 0


def answer_to(client: http.client.HTTPConnection) -> bytes:
    client.request("GET", "/")
    return client.getresponse().read()


def wait_for_death(proxy: Proxy, nth: int) -> None:
    """Of worker 0; under load, another worker may have died too."""
    proxy.wait_for_line(
        lambda line: '"worker died' in line and '"worker":0,' in line, f"death {nth} of worker 0", DEADLINE_S, nth
    )


def test_a_worker_that_keeps_dying_is_restarted_more_and_more_slowly_and_makes_the_proxy_not_ready() -> None:
    with reserved_port() as port, Proxy() as proxy:
        proxy.use(fixed(port))
        delays = []
        for nth in range(1, 7):
            os.kill(proxy.worker_pid(0, nth), signal.SIGKILL)
            wait_for_death(proxy, nth)
            delays.append([line for line in proxy.log if line.get("msg", "").startswith("worker died")][-1]["delay_s"])

        assert proxy.readiness() == (503, "a worker cannot be started")
        assert delays == sorted(delays)
        assert delays[-1] >= 8 * delays[0]
        eventually(lambda: proxy.readiness()[0] == 200, "ready once it has started")
        assert ask(port).text == "fixed"


def test_a_worker_that_cannot_start_leaves_its_share_of_connections_to_the_others() -> None:
    with reserved_port() as port, Proxy("--workers", "2") as proxy:
        proxy.use(fixed(port))
        for nth in range(1, 8):
            os.kill(proxy.worker_pid(0, nth), signal.SIGKILL)
            wait_for_death(proxy, nth)
        # The next start is five seconds away.
        proxy.wait_for_line(lambda line: "its connections go to the others" in line, "withdrawal", DEADLINE_S, nth=5)
        began_s = time.monotonic()

        assert all(answer.endswith(b"\r\n\r\nfixed") for answer in answers_at_once(port, 30))

        assert time.monotonic() - began_s < 5
        proxy.worker_pid(0, nth=8)
        eventually(lambda: proxy.metric("tunnelgw_proxy_worker_up", worker="0") == 1, "it serves again")
        os.kill(proxy.worker_pid(1), signal.SIGSTOP)
        try:
            # Those that the kernel gives to the other one wait; some are for this one.
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = [pool.submit(ask, port) for _ in range(16)]
                done, _ = concurrent.futures.wait(answers, DEADLINE_S, concurrent.futures.FIRST_COMPLETED)
                assert done
                os.kill(proxy.worker_pid(1), signal.SIGCONT)
        finally:
            os.kill(proxy.worker_pid(1), signal.SIGCONT)


def answers_at_once(port: int, count: int) -> list[bytes]:
    """One after another they would add up what the machine pauses in each of them, and so would a thread for each."""
    with contextlib.ExitStack() as stack:
        address = (LOOPBACK, port)
        clients = [stack.enter_context(socket.create_connection(address, DEADLINE_S)) for _ in range(count)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return [b"".join(iter(partial(client.recv, 65536), b"")) for client in clients]


def test_workers_end_when_their_supervisor_is_killed() -> None:
    with reserved_port() as port:
        proxy = Proxy("--workers", "2").start()
        proxy.use(fixed(port))
        pids = [proxy.worker_pid(index) for index in range(2)]

        proxy.kill()

        eventually(lambda: all(map(is_gone, pids)), "no worker is left")


def test_requests_that_run_when_the_supervisor_is_killed_are_reset_and_logged() -> None:
    """Nothing could stop them any more. An HTTP/1.0 client would take half a response for a complete one."""
    with (
        socket.create_server((LOOPBACK, 0)) as backend,
        reserved_port() as port,
        contextlib.ExitStack() as stack,
    ):
        proxy = Proxy("--access-log", "all").start()
        stack.callback(proxy.kill)
        proxy.use(forwarding(port, f"{LOOPBACK}:{backend.getsockname()[1]}"))
        client = stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=DEADLINE_S))
        client.sendall(b"GET /half HTTP/1.0\r\nHost: a\r\n\r\n")
        backend.settimeout(DEADLINE_S)
        served = stack.enter_context(backend.accept()[0])
        served.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        received = b""
        while b"hello" not in received:
            received += client.recv(1024)

        proxy.kill()

        with pytest.raises(ConnectionResetError):
            client.recv(1024)
        told = proxy.wait_for_message("request")
    assert (told["path"], told["status_code"], told["detail"]) == ("/half", 200, "cut off, the proxy is stopping")


def test_a_worker_paused_by_sigstop_ends_when_its_supervisor_is_killed() -> None:
    """It kept its share of the ports: the connections that the kernel gave it waited, even beside a new proxy."""
    with reserved_port() as port:
        proxy = Proxy("--workers", "2").start()
        proxy.use(fixed(port))
        pid = proxy.worker_pid(1)
        os.kill(pid, signal.SIGSTOP)
        try:
            proxy.kill()

            eventually(lambda: is_gone(pid), "the worker ends")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_worker_ignores_termination_signals() -> None:
    with reserved_port() as port, Proxy() as proxy:
        proxy.use(fixed(port))
        pid = proxy.worker_pid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)

        assert ask(port).text == "fixed"
        assert not is_gone(pid)


def test_a_worker_has_no_secret_in_its_environment_and_no_sockets_but_its_own() -> None:
    with Proxy() as proxy:
        pid = proxy.worker_pid()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PROXY_AUTH_TOKEN" not in environment
        listening = [name for name in map(os.readlink, Path(f"/proc/{pid}/fd").iterdir()) if "socket" in name]
        # The control channel, and the socket pair that wakes the loop.
        assert len(listening) == 3


def test_a_proxy_that_is_started_without_standard_files_keeps_its_first_workers() -> None:
    command = [sys.executable, "-m", "proxy", "run", "--config-addr", "127.0.0.1:0", "--workers", "2"]
    with Process("proxy", ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command]) as proxy:
        proxy.wait_for_line(lambda line: '"worker started"' in line, "the second worker", DEADLINE_S, 2)
        assert not [line for line in proxy.lines if '"worker died' in line]


@pytest.mark.parametrize("flag", ["-I", "-E"])
def test_workers_ignore_the_variables_that_the_supervisors_interpreter_was_told_to_ignore(
    tmp_path: Path, flag: str
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('taken for the library')\n")
    begin = f"import runpy, sys; sys.path.insert(0, {str(REPOSITORY)!r}); sys.argv[0] = 'proxy'; "
    begin += "runpy.run_module('proxy', run_name='__main__', alter_sys=True)"
    variables = {"PYTHONPATH": str(tmp_path)}

    with Process("proxy", [sys.executable, flag, "-c", begin, *RUN], variables) as proxy:
        proxy.wait_for_line(lambda line: '"msg":"started"' in line, "that it has started", DEADLINE_S)

    assert not [line for line in proxy.lines if "taken for the library" in line or "worker died" in line]


def test_workers_ignore_the_packages_of_the_user_if_the_supervisors_interpreter_was_told_to() -> None:
    with Process("proxy", [sys.executable, "-s", "-m", "proxy", *RUN]) as proxy:
        proxy.wait_for_line(lambda line: '"msg":"started"' in line, "that it has started", DEADLINE_S)

        variables = Path(f"/proc/{child_of(proxy.pid)}/environ").read_bytes().split(b"\0")

    assert b"PYTHONNOUSERSITE=1" in variables


@pytest.mark.parametrize("start", [("-m", "proxy"), ("-c", "from proxy.cli import main; main()")])
@pytest.mark.parametrize("others", ["{other}", "{other}:{ours}"])
def test_workers_find_our_packages_where_the_supervisor_did(
    tmp_path: Path, others: str, start: tuple[str, str]
) -> None:
    """In its working directory, which comes before PYTHONPATH, where another package has the name of one of ours."""
    (tmp_path / "proxy.py").write_text("raise SystemExit('taken for our package')\n")
    variables = {"PYTHONPATH": others.format(other=tmp_path, ours=REPOSITORY)}

    with Process("proxy", [sys.executable, *start, *RUN], variables) as proxy:
        proxy.wait_for_line(lambda line: '"msg":"started"' in line, "that it has started", DEADLINE_S)

    assert not [line for line in proxy.lines if "taken for our package" in line or "worker died" in line]


def test_workers_of_an_installation_behind_a_link_find_libraries_where_the_supervisor_did(tmp_path: Path) -> None:
    """In PYTHONPATH, which comes before what is installed."""
    (tmp_path / "current").symlink_to("1.0")
    venv.create(tmp_path / "1.0", symlinks=True)
    (installed,) = (tmp_path / "1.0").glob("lib/python*/site-packages")
    for package in ("daemonkit", "proxy"):
        shutil.copytree(REPOSITORY / package, installed / package)
    (installed / "others.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    (installed / "msgspec.py").write_text("raise SystemExit('taken for the library')\n")
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    command = [str(tmp_path / "current/bin/python"), "-P", "-m", "proxy", *RUN]

    with Process("proxy", command, {"PYTHONPATH": str(tmp_path)}) as proxy:
        proxy.wait_for_line(lambda line: '"msg":"started"' in line, "that it has started", DEADLINE_S)

    assert not [line for line in proxy.lines if "taken for the library" in line or "worker died" in line]


def test_how_a_worker_ended_is_told_even_if_the_parent_of_the_proxy_ignores_the_ends_of_its_children() -> None:
    begin = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", begin, sys.executable, "-m", "proxy", *RUN]

    with Process("proxy", command) as proxy:
        proxy.wait_for_line(lambda line: '"msg":"started"' in line, "that it has started", DEADLINE_S)
        os.kill(child_of(proxy.pid), signal.SIGKILL)

        said = proxy.wait_for_line(lambda line: "worker died" in line, "that a worker died", DEADLINE_S)

    assert '"error":"signal SIGKILL"' in said


def child_of(pid: int) -> int:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return next(int(child) for task in tasks for child in (task / "children").read_text().split())
