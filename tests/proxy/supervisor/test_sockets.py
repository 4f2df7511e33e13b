"""Listening sockets: which are bound, which cannot be, and what happens then."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.document import Listener
from proxy.supervisor.sockets import ListeningSockets
from tests.proxy.site import DEADLINE_S, Proxy, ask, eventually, fixed, reserved_port
from tests.support.limits import out_of_descriptors
from tests.support.netns import NOT_ALLOWED
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here


@pytest.fixture
def sockets() -> Iterator[ListeningSockets]:
    """For two workers."""
    made = ListeningSockets(2)
    yield made
    made.close()


def listener(port: int, address: str = "127.0.0.1", name: str = "main") -> Listener:
    return Listener(name, address=address, port=port)


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=DEADLINE_S).close()
    except OSError:
        return False
    return True


def is_listening(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def test_each_worker_gets_a_socket_of_its_own_on_the_same_port(sockets: ListeningSockets) -> None:
    with reserved_port() as port:
        sockets.use([listener(port)])

        (group,) = sockets.groups.values()
        assert [sock.getsockname() for sock in group] == [("127.0.0.1", port)] * 2
        assert all(map(is_listening, group))
        assert len({sock.fileno() for sock in group}) == 2


def test_listeners_that_share_a_port_share_its_sockets(sockets: ListeningSockets) -> None:
    with reserved_port() as port:
        sockets.use([listener(port, name="a"), listener(port, name="b")])

        assert list(sockets.groups) == [f"127.0.0.1:{port}"]


def test_an_empty_address_means_both_families(sockets: ListeningSockets) -> None:
    if not socket.has_dualstack_ipv6():
        not_possible_here("this host has no IPv6")
    with reserved_port("::") as port:
        sockets.use([listener(port, address="")])

        assert connects("127.0.0.1", port)
        assert connects("::1", port)


def test_an_ipv6_address_means_that_family_alone(sockets: ListeningSockets) -> None:
    if not socket.has_dualstack_ipv6():
        not_possible_here("this host has no IPv6")
    with reserved_port("::") as port:
        sockets.use([listener(port, address="::")])

        assert connects("::1", port)
        assert not connects("127.0.0.1", port)


def test_an_address_in_another_spelling_keeps_its_sockets(sockets: ListeningSockets) -> None:
    if not socket.has_dualstack_ipv6():
        not_possible_here("this host has no IPv6")
    with reserved_port("::1") as port:
        sockets.use([listener(port, address="::1")])
        before = dict(sockets.groups)
        sockets.use([listener(port, address="0:0::1")])

        assert before == sockets.groups
        assert list(before) == [f"[::1]:{port}"]


def test_an_ipv4_address_in_the_spelling_of_ipv6_is_that_address(sockets: ListeningSockets) -> None:
    with reserved_port() as port:
        sockets.use([listener(port, address="::ffff:127.0.0.1")])

        assert list(sockets.groups) == [f"127.0.0.1:{port}"]
        assert connects("127.0.0.1", port)


def test_a_link_local_address_is_bound_on_its_interface() -> None:
    code = (
        "from proxy.document import Listener; from proxy.supervisor.sockets import ListeningSockets\n"
        "sockets = ListeningSockets(1)\n"
        "sockets.use([Listener(zone, address=f'fe80::5%{zone}', port=8080) for zone in ('lo', 'none0')])\n"
        "print([group[0].getsockname() for group in sockets.groups.values()], sockets.problems[0].message)"
    )
    # The namespace has no address of that kind yet; `ip` may not be there.
    script = 'ip address add fe80::5/64 dev lo nodad || exit 77; exec "$0" -c "$1"'
    command = [sys.executable, "-m", "tests.support.netns", "192.0.2.1", "sh", "-c", script, sys.executable, code]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode == NOT_ALLOWED:
        not_possible_here(f"no IPv6 in a network namespace: {done.stderr.strip()}")

    assert done.stdout.startswith("[('fe80::5', 8080, 0, 1)] cannot listen on [fe80::5%none0]:8080: No such device; ")
    assert "name an interface of this host" in done.stdout


def test_a_link_local_address_without_its_interface_is_a_problem_that_says_so(sockets: ListeningSockets) -> None:
    sockets.use([listener(8080, address="fe80::5")])

    (problem,) = sockets.problems
    assert "Invalid argument; a link-local address needs its interface, as in fe80::1%eth0" in problem.message


def test_sockets_stay_across_documents_and_are_closed_only_when_released(sockets: ListeningSockets) -> None:
    with reserved_port() as one, reserved_port() as other:
        sockets.use([listener(one)])
        (kept,) = sockets.groups.values()
        sockets.use([listener(one, name="renamed"), listener(other)])
        assert sockets.groups[f"127.0.0.1:{one}"] is kept

        sockets.use([listener(other)])
        sockets.withdraw(0)
        assert list(sockets.groups) == [f"127.0.0.1:{other}"]
        assert [is_listening(sock) for sock in sockets.groups[f"127.0.0.1:{other}"]] == [False, True]
        assert [is_listening(sock) for sock in kept] == [True, True]
        sockets.release()
        assert not connects("127.0.0.1", one)


def test_a_missing_worker_keeps_its_socket_if_no_other_can_be_bound_in_its_place(
    sockets: ListeningSockets, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections to it then wait for the worker, instead of being refused."""
    with reserved_port() as port:
        sockets.use([listener(port)])
        (kept,) = sockets.groups.values()

        with out_of_descriptors():
            sockets.withdraw(0)

        assert sockets.groups == {f"127.0.0.1:{port}": kept}
        assert [is_listening(sock) for sock in kept] == [True, True]
        assert "cannot withdraw the socket of a missing worker, its connections wait" in caplog.messages


def test_an_address_of_another_host_is_a_problem_with_its_path_and_a_remedy(sockets: ListeningSockets) -> None:
    with reserved_port() as port:
        sockets.use([listener(port), listener(port, address="192.0.2.1", name="far")])

        (problem,) = sockets.problems
        assert problem.path == "listeners[1].port"
        assert problem.message.startswith(f"cannot listen on 192.0.2.1:{port}: Cannot assign requested address; choose")
        assert connects("127.0.0.1", port)


def test_an_interface_may_be_given_by_its_number(sockets: ListeningSockets) -> None:
    sockets.use([listener(8080, address="fe80::5%1")])

    (problem,) = sockets.problems
    assert "Cannot assign requested address" in problem.message


def test_a_port_that_cannot_be_bound_is_logged_once_however_often_it_is_tried(
    sockets: ListeningSockets, caplog: pytest.LogCaptureFixture
) -> None:
    sockets.use([listener(8080, address="192.0.2.1")])
    assert not sockets.retry()

    assert caplog.messages == ["cannot listen"]
    sockets.close()
    assert sockets.problems == ()


def test_a_problem_ends_with_its_listener(sockets: ListeningSockets) -> None:
    with reserved_port() as port:
        sockets.use([listener(port), listener(port, address="192.0.2.1", name="far")])
        sockets.use([listener(port)])

        assert sockets.problems == ()


def test_a_privileged_port_is_a_problem_with_a_remedy() -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 81:
        not_possible_here("every user may bind low ports on this host")
    # Privileges are dropped after the imports: another user may have no access to this interpreter.
    code = (
        "import os; from proxy.document import Listener; from proxy.supervisor.sockets import ListeningSockets\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sockets = ListeningSockets(1); sockets.use([Listener('a', address='127.0.0.1', port=81)])\n"
        "print(sockets.problems[0].message)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert "127.0.0.1:81: Permission denied; ports below 1024 need" in done.stdout
    assert "CAP_NET_BIND_SERVICE" in done.stdout


def test_a_port_in_use_affects_no_other_listener_and_is_bound_once_it_is_free() -> None:
    with reserved_port() as free, reserved_port() as taken, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", taken))
        other.listen()
        document = fixed(free)
        document["listeners"] = [*document["listeners"], {"name": "late", "address": "127.0.0.1", "port": taken}]
        with Proxy("--workers", "2") as proxy:
            answer = proxy.use(document)

            (problem,) = answer["problems"]
            assert problem["path"] == "listeners[1].port"
            assert os.strerror(errno.EADDRINUSE) in problem["message"]
            assert ask(free).text == "fixed"
            assert proxy.metric("tunnelgw_proxy_config_problems") == 1
            assert proxy.get().headers["Configuration-Problems"] == "1"
            assert proxy.readiness()[0] == 200

            other.close()

            eventually(lambda: connects("127.0.0.1", taken), "bound at a later try")
            eventually(lambda: {ask(taken).text for _ in range(8)} == {"fixed"}, "served by all workers")
            assert proxy.metric("tunnelgw_proxy_config_problems") == 0
            assert "Configuration-Problems" not in proxy.get().headers


def test_a_port_that_the_next_document_does_not_name_is_released() -> None:
    with reserved_port() as first, reserved_port() as second, Proxy("--workers", "2") as proxy:
        proxy.use(fixed(first))
        proxy.use(fixed(second))

        eventually(lambda: not connects("127.0.0.1", first), "refused")
        assert ask(second).text == "fixed"
        proxy.use(fixed(first))
        assert {ask(first).text for _ in range(8)} == {"fixed"}


def test_listeners_leave_descriptors_for_everything_else() -> None:
    """The config API and the workers need some, or no smaller document could be delivered."""
    # In a process of its own: descriptors of other tests would count.
    code = (
        "import os, resource\n"
        "from proxy.document import Listener\n"
        "from proxy.supervisor.sockets import SPARE_DESCRIPTORS, ListeningSockets\n"
        "sockets = ListeningSockets(2)\n"
        "first = os.dup(0)\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (first + 1 + 3 * 2 + SPARE_DESCRIPTORS, hard))\n"
        "sockets.use([Listener(f'l{n}', address='127.0.0.1', port=int(port)) for n, port in enumerate(PORTS)])\n"
        "print(len(sockets.groups), [problem.path for problem in sockets.problems], sockets.problems[0].message)"
    )
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(reserved_port()) for _ in range(5)]
        script = code.replace("PORTS", repr(ports))
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("3 ['listeners[3].port', 'listeners[4].port']"), done.stdout
    assert "LimitNOFILE" in done.stdout
