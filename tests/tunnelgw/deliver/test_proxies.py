"""Documents pushed to a real proxy: versions, restarts, other writers, refusals."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemonkit.secret import Secret
from tests.e2e.controller.fronts import Front
from tests.proxy.site import TOKEN, Proxy, eventually
from tests.support.socketbackend import Dialogue, SocketBackend
from tunnelgw.deliver.configclient import ConfigClient, ConfigEndpoint, Loaded, PutAnswer, VersionConflict
from tunnelgw.deliver.courier import Undelivered, Withheld
from tunnelgw.deliver.proxies import DocumentParcel, ProxyTarget
from tunnelgw.deliver.receipts import RemarkKind
from tunnelgw.deliver.targets import Author


def parcel(host: str) -> DocumentParcel:
    routes = [{"hostnames": [host], "backends": [{"address": "127.0.0.1:3000"}]}]
    return DocumentParcel(host, (b"," + json.dumps({"routes": routes}).encode()[1:],))


def target_of(proxy: Proxy, token: str = TOKEN, before_call: Callable[[], None] = lambda: None) -> ProxyTarget:
    endpoint = ConfigEndpoint(f"http://{proxy.address('config')}")
    return ProxyTarget(endpoint, ConfigClient(endpoint, Secret(token), before_call=before_call))


def target_at(url: str) -> ProxyTarget:
    endpoint = ConfigEndpoint(url)
    return ProxyTarget(endpoint, ConfigClient(endpoint, Secret(TOKEN)))


@contextmanager
def listening(url: str) -> Iterator[Proxy]:
    with Proxy("--config-addr", url) as proxy:
        proxy.wait_for_message("listening", server="config")
        yield proxy


def hosts(proxy: Proxy) -> tuple[int, list[str]]:
    document = proxy.get().json()
    return document["version"], [host for route in document["routes"] for host in route["hostnames"]]


def test_the_first_document_is_version_1_and_each_change_one_more() -> None:
    with Proxy() as proxy:
        target = target_of(proxy)
        assert target.deliver(parcel("a.example")) == ()
        assert hosts(proxy) == (1, ["a.example"])

        target.deliver(parcel("a.example"))
        assert hosts(proxy)[0] == 1
        target.deliver(parcel("b.example"))

        assert hosts(proxy) == (2, ["b.example"])
        target.close()


def test_a_new_controller_continues_from_the_version_that_is_loaded() -> None:
    with Proxy() as proxy:
        proxy.put({"version": 10**15, "routes": []})
        target = target_of(proxy)

        target.deliver(parcel("a.example"))

        assert hosts(proxy) == (10**15 + 1, ["a.example"])
        target.close()


def test_a_document_that_was_put_by_hand_is_replaced_at_the_next_visit() -> None:
    with Proxy() as proxy:
        target = target_of(proxy)
        target.deliver(parcel("a.example"))
        proxy.put({"version": 40, "routes": []})

        target.deliver(parcel("a.example"))

        assert hosts(proxy) == (41, ["a.example"])
        target.close()


def test_a_newer_version_than_expected_is_overtaken_at_once() -> None:
    with Proxy() as proxy:
        target = target_of(proxy)
        target.deliver(parcel("a.example"))
        proxy.put({"version": 40, "routes": []})

        target.deliver(parcel("b.example"))

        assert hosts(proxy) == (41, ["b.example"])
        target.close()


def test_a_farewell_empties_a_proxy_that_holds_its_last_document_and_is_idempotent() -> None:
    with Proxy() as proxy:
        versions: list[int] = []
        endpoint = ConfigEndpoint(f"http://{proxy.address('config')}")
        target = ProxyTarget(endpoint, ConfigClient(endpoint, Secret(TOKEN)), versions.append)
        target.deliver(parcel("a.example"))
        assert versions == [1]
        target.close()

        farewell = target_of(proxy)
        for _ in range(2):
            farewell.deliver(DocumentParcel.nothing(over=1))

            assert proxy.get().json() == {"version": 2}
        farewell.close()


@pytest.mark.parametrize("version", [1, 40, None], ids=["older", "newer", "none"])
def test_a_farewell_leaves_a_foreign_document_and_a_proxy_without_a_document_alone(version: int | None) -> None:
    with Proxy() as proxy:
        if version:
            proxy.put(b"".join((b'{"version":%d' % version, *parcel("b.example").tail)))
        target = target_of(proxy)

        assert target.deliver(DocumentParcel.nothing(over=5)) == ()

        assert proxy.get().status_code == (200 if version else 404)
        if version:
            assert hosts(proxy) == (version, ["b.example"])
        target.close()


def test_a_farewell_to_a_gateway_empties_a_proxy_whose_document_is_for_that_gateway_alone() -> None:
    created, another = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    cases: list[tuple[list[tuple[str, str | None]], bool]] = [
        ([("shop/gw", created)], True),
        ([("shop/gw", created), ("shop/gw", None)], True),  # the second one only keeps a port closed
        ([("shop/gw", another)], False),  # made again, or in another cluster
        ([("shop/other", created)], False),
        ([("shop/gw", created), ("shop/other", created)], False),
        ([("shop/gw", None)], False),
        ([], False),
    ]
    with Proxy() as proxy, Front(proxy.api) as front:
        target = target_at(front.url)
        for version, (authors, is_emptied) in zip(itertools.count(10, 10), cases, strict=False):
            named = [
                {
                    "name": host,
                    "gateway": gateway,
                    "hostname": host,
                    "tunnel": True,
                    **({"createdAt": at} if at else {}),
                }
                for host, (gateway, at) in zip(("a.example", "b.example"), authors, strict=False)
            ]
            assert proxy.put({"version": version, "listeners": named}).status_code == 200

            assert target.deliver(DocumentParcel.nothing(Author("shop/gw", created))) == ()

            assert proxy.get().json()["version"] == version + is_emptied, authors
            assert not is_emptied or "listeners" not in proxy.get().json()
        for body in (b"", b"\xff", b"[" * 100_000, b'{"listeners":7}'):
            odd = front.answer(lambda asked: asked.method == "GET", 200, body)

            assert target.deliver(DocumentParcel.nothing(Author("shop/gw", created))) == ()
            odd.release()
        target.close()


def test_a_farewell_that_is_overtaken_by_another_document_leaves_that_alone() -> None:
    with Proxy() as proxy:
        proxy.put({"version": 1, "routes": []})
        calls = itertools.count()

        def overtake() -> None:
            if next(calls) == 1:  # between the look and the writing
                proxy.put(b"".join((b'{"version":2', *parcel("b.example").tail)))

        target = target_of(proxy, before_call=overtake)

        assert target.deliver(DocumentParcel.nothing(over=1)) == ()

        assert next(calls) == 2
        assert hosts(proxy) == (2, ["b.example"])
        target.close()


class OddOnce(ConfigClient):
    """Reports once a version that no proxy has."""

    def __init__(self) -> None:
        super().__init__(ConfigEndpoint("http://127.0.0.1:1"), None)
        self.version = 1
        self.has_been_odd = False

    def loaded(self) -> Loaded:
        return Loaded(self.version)

    def put(self, *document: bytes) -> PutAnswer:
        if not self.has_been_odd:
            self.has_been_odd = True
            raise VersionConflict(-3)
        version = json.loads(b"".join(document))["version"]
        if version <= self.version:
            raise Undelivered(f"version {version}, want a larger one", is_refusal=True)
        self.version = version
        return PutAnswer(version)


def test_an_impossible_version_in_a_conflict_is_not_used_for_ever() -> None:
    client = OddOnce()
    target = ProxyTarget(ConfigEndpoint("http://127.0.0.1:1"), client)
    with pytest.raises(Undelivered, match="version -2"):
        target.deliver(parcel("a.example"))

    assert target.deliver(parcel("a.example")) == ()
    assert client.version == 2


def test_a_proxy_that_was_restarted_empty_gets_its_document_again(tmp_path: Path) -> None:
    url = f"unix:{tmp_path / 'config.sock'}"
    target = target_at(url)
    with listening(url):
        target.deliver(parcel("a.example"))
    with pytest.raises(Undelivered, match="No such file"):
        target.deliver(parcel("a.example"))
    with listening(url) as proxy:
        target.deliver(parcel("a.example"))

        proxy.wait_for_message("configuration loaded", document_version=1)
        target.close()


class FailingAtTimes:
    """The script of a proxy that holds the version `loaded`, and answers PUT with `failure` if that is set."""

    def __init__(self) -> None:
        self.loaded: int | None = None
        self.failure = b""

    def __call__(self, dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            if request.startswith(b"HEAD") and self.loaded is None:
                dialogue.answer(b"", status=b"404 Not Found")
            elif request.startswith(b"HEAD"):
                dialogue.answer(b"", f"Configuration-Version: {self.loaded}".encode())
            elif self.failure:
                dialogue.answer(b'{"loaded":%d}' % (self.loaded or 0), status=self.failure)
            else:
                self.loaded = json.loads(request.partition(b"\r\n\r\n")[2])["version"]
                dialogue.answer(b'{"version":%d}' % self.loaded)


@pytest.mark.parametrize("failure", [b"400 Bad Request", b"409 Conflict", b"500 Internal Server Error"])
@pytest.mark.parametrize("found", [None, 40], ids=["empty", "another document"])
def test_what_a_visit_finds_instead_of_its_document_does_not_count_as_that_after_a_failed_put(
    found: int | None, failure: bytes
) -> None:
    """A proxy that has just restarted may fail at first, for lack of a worker."""
    proxy = FailingAtTimes()
    with SocketBackend(proxy) as backend:
        target = target_at(f"http://{backend.address}")
        target.deliver(parcel("a.example"))
        proxy.loaded, proxy.failure = found, failure
        for _ in range(2):
            with pytest.raises(Undelivered):
                target.deliver(parcel("a.example"))
        proxy.failure = b""

        target.deliver(parcel("a.example"))

        assert proxy.loaded == (found or 0) + 1
        target.close()


def test_a_document_is_sent_to_a_proxy_restarted_empty_also_after_it_refused_another_one() -> None:
    proxy = FailingAtTimes()
    with SocketBackend(proxy) as backend:
        target = target_at(f"http://{backend.address}")
        target.deliver(parcel("a.example"))
        proxy.failure = b"400 Bad Request"
        with pytest.raises(Undelivered):
            target.deliver(parcel("b.example"))
        proxy.loaded, proxy.failure = None, b""

        target.deliver(parcel("a.example"))

        assert proxy.loaded == 1
        target.close()


def test_an_unreachable_proxy_is_reported_with_what_to_check(tmp_path: Path) -> None:
    """The proxy's name precedes this wherever it is reported."""
    target = target_at(f"unix:{tmp_path / 'config.sock'}")

    with pytest.raises(Undelivered) as raised:
        target.deliver(parcel("a.example"))

    assert str(raised.value) == (
        "no answer: [Errno 2] No such file or directory; is the proxy up, and is the address right?"
    )


def test_a_wrong_token_is_reported_with_the_remedy() -> None:
    with Proxy() as proxy:
        target = target_of(proxy, "another-token")

        with pytest.raises(Undelivered, match=r"^answered 401 .*restart it if.* for a shared proxy") as raised:
            target.deliver(parcel("a.example"))

        assert raised.value.is_refusal
        assert "another-token" not in str(raised.value)
        target.close()


def test_a_missing_token_is_reported_with_the_remedy() -> None:
    with Proxy() as proxy:
        endpoint = ConfigEndpoint(f"http://{proxy.address('config')}")
        target = ProxyTarget(endpoint, ConfigClient(endpoint, None))

        with pytest.raises(Undelivered, match=r"401.*we have none: name its Secret") as raised:
            target.deliver(parcel("a.example"))

        assert raised.value.is_refusal
        target.close()


def test_a_document_that_the_proxy_refuses_is_reported_with_the_place() -> None:
    with Proxy() as proxy:
        target = target_of(proxy)
        bad = DocumentParcel("bad", (b',"routes":[{"hostnames":["UPPER"]}]}',))

        with pytest.raises(Undelivered, match=r"400.*routes\[0\]\.hostnames\[0\]") as raised:
            target.deliver(bad)

        assert raised.value.is_refusal
        target.close()


def test_a_port_that_the_proxy_cannot_bind_is_remarked_every_time() -> None:
    with Proxy() as proxy:
        listeners = [{"name": "web", "address": "192.0.2.1", "port": 80}]
        unbindable = DocumentParcel("l", (b"," + json.dumps({"listeners": listeners}).encode()[1:],))
        target = target_of(proxy)

        first, second = target.deliver(unbindable), target.deliver(unbindable)

        assert first == second
        assert [(remark.kind, remark.subject) for remark in first] == [("port", "listeners[0].port")]
        target.close()


def test_a_port_that_can_be_bound_again_is_remarked_no_longer() -> None:
    with Proxy() as proxy, socket.create_server(("127.0.0.1", 0)) as holder:
        listeners = [{"name": "web", "address": "127.0.0.1", "port": holder.getsockname()[1]}]
        wanted = DocumentParcel("l", (b"," + json.dumps({"listeners": listeners}).encode()[1:],))
        target = target_of(proxy)
        assert target.deliver(wanted)

        holder.close()

        eventually(lambda: not target.deliver(wanted), "no remark any more")
        target.close()


def test_a_port_that_a_proxy_cannot_bind_again_after_a_restart_is_remarked() -> None:
    """It has the document that it was sent, from its state directory, and says that not all of it is served."""
    told = {"version": 1, "changed": False, "problems": [{"path": "listeners[0].port", "message": "in use"}]}

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", status=b"404 Not Found")
        dialogue.read_request()
        dialogue.answer(b'{"version":1,"changed":true}')
        dialogue.read_request()
        dialogue.answer(b"", b"Configuration-Version: 1\r\nConfiguration-Problems: 1")
        assert b'{"version":1' in dialogue.read_request()
        dialogue.answer(json.dumps(told).encode())

    with SocketBackend(answer) as backend:
        target = target_at(f"http://{backend.address}")
        assert target.deliver(parcel("a.example")) == ()

        (remark,) = target.deliver(parcel("a.example"))

        assert (remark.kind, remark.subject, remark.message) == ("port", "listeners[0].port", "in use")
        target.close()


def test_every_proxy_that_a_name_resolves_to_gets_the_document() -> None:
    """Such as those of a Service during a rollout, which ends only when the new one is ready: over a connection that is
    kept the old one alone would be asked."""
    seen: list[tuple[int, bytes]] = []

    def answer(dialogue: Dialogue) -> None:
        is_loaded = False
        while request := dialogue.read_request():
            seen.append((dialogue.number, request.split(b" ")[0]))
            if request.startswith(b"PUT"):
                is_loaded = True
                dialogue.answer(b'{"version":1,"changed":true}')
            elif is_loaded:
                dialogue.answer(b"", b"Configuration-Version: 1")
            else:
                dialogue.answer(b"", status=b"404 Not Found")

    with SocketBackend(answer) as backend:
        target = target_at(f"http://localhost:{backend.address.rpartition(':')[2]}")

        for _ in range(2):
            target.deliver(parcel("a.example"))

        assert seen == [(1, b"HEAD"), (1, b"PUT"), (2, b"HEAD"), (2, b"PUT")]


@contextmanager
def telling_versions(*versions: int) -> Iterator[tuple[ProxyTarget, list[bytes]]]:
    """A proxy that is empty, takes a document, and at each visit holds the next of these versions; and its requests."""
    seen: list[bytes] = []

    def answer(dialogue: Dialogue) -> None:
        held = iter(versions)
        is_loaded = False
        while request := dialogue.read_request():
            seen.append(request.split(b" ")[0])
            if request.startswith(b"PUT"):
                is_loaded = True
                dialogue.answer(b'{"version":%d}' % json.loads(request.partition(b"\r\n\r\n")[2])["version"])
            elif is_loaded:
                dialogue.answer(b"", b"Configuration-Version: %d" % next(held))
            else:
                dialogue.answer(b"", status=b"404 Not Found")

    with SocketBackend(answer) as backend:
        target = target_at(f"http://{backend.address}")
        yield target, seen
        target.close()


def test_a_visit_to_a_proxy_that_is_well_sends_no_document_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with telling_versions(1, 1) as (target, seen):
        assert [target.deliver(parcel("a.example")) for _ in range(3)] == [(), (), ()]

        assert seen == [b"HEAD", b"PUT", b"HEAD", b"HEAD"]
    assert caplog.messages == []


def test_a_proxy_that_holds_something_else_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with telling_versions(40) as (target, seen):
        target.deliver(parcel("a.example"))
        target.deliver(parcel("a.example"))

        assert seen == [b"HEAD", b"PUT", b"HEAD", b"PUT"]
    assert "proxy does not hold what it was sent, sending it again" in caplog.messages


def test_repeated_replacement_of_a_document_is_remarked_until_a_visit_finds_ours() -> None:
    """Another controller, for example, that names the same proxy and has other Gateways."""
    with Proxy() as proxy:
        ours, theirs = target_of(proxy), target_of(proxy)
        ours.deliver(parcel("a.example"))
        told = []
        for _ in range(4):
            theirs.deliver(parcel("b.example"))
            told.append([remark.kind for remark in ours.deliver(parcel("a.example"))])

        assert told == [[], [], [RemarkKind.REPLACED], [RemarkKind.REPLACED]]
        assert hosts(proxy)[1] == ["a.example"]
        assert ours.deliver(parcel("a.example")) == ()
        ours.close()
        theirs.close()


def test_a_proxy_that_is_found_empty_again_and_again_is_remarked_until_a_visit_finds_ours() -> None:
    """It is restarted every few seconds, or its address leads to several proxies."""
    proxy = FailingAtTimes()
    with SocketBackend(proxy) as backend:
        target = target_at(f"http://{backend.address}")
        target.deliver(parcel("a.example"))
        told = []
        for _ in range(4):
            proxy.loaded = None
            told.append(
                [
                    (remark.kind, "loses its document" in remark.message)
                    for remark in target.deliver(parcel("a.example"))
                ]
            )

        assert told == [[], [], [(RemarkKind.REPLACED, True)], [(RemarkKind.REPLACED, True)]]
        assert target.deliver(parcel("a.example")) == ()
        target.close()


def test_two_controllers_that_want_the_same_document_leave_each_other_s_version() -> None:
    with Proxy() as proxy:
        one, other = target_of(proxy), target_of(proxy)
        for target in (one, other):
            target.deliver(parcel("a.example"))
        settled = hosts(proxy)

        for target in (one, other, one, other):
            target.deliver(parcel("a.example"))

        assert hosts(proxy) == settled
        one.close()
        other.close()


@pytest.mark.parametrize("first_refused", [1, 2])
def test_a_deposed_leader_writes_nothing_more(first_refused: int) -> None:
    calls = itertools.count(1)

    def require_lead() -> None:
        if next(calls) >= first_refused:
            raise Withheld

    with Proxy() as proxy:
        target = target_of(proxy, before_call=require_lead)

        with pytest.raises(Withheld):
            target.deliver(parcel("a.example"))

        assert proxy.get().status_code == 404
        target.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "proxy:8082",
        "ftp://proxy",
        "http://",
        "http://proxy/config",
        "http://a b:1",
        "http://a\x01b:1",
        "http://a\tb:1",
        "http://a\r\nb:1",
        "http://a:0",
        "http://[:1",
        "http://[::1]x:80",
        "http://x[::1]:80",
    ],
)
def test_a_malformed_endpoint_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="want http://host:port, https://host:port or unix:/path"):
        ConfigClient(ConfigEndpoint(url), None)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_endpoint_that_the_resolver_would_take_for_another_address_is_refused(scheme: str) -> None:
    with pytest.raises(ValueError, match="neither an IPv4 address nor a name"):
        ConfigClient(ConfigEndpoint(f"{scheme}://192.168.010.1:8082"), None)
