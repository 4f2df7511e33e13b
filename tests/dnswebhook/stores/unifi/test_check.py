"""What a person sees of `dnswebhook check`."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.stores.base import Finding, Grade
from dnswebhook.stores.unifi.settings import UnifiSettings
from dnswebhook.stores.unifi.store import UnifiStore
from tests.dnswebhook.stores.unifi.conftest import OpenStore
from tests.support.controller import Controller, Flavour, Hang, Reply, Reset, faults


def found(store: UnifiStore, seconds: float = 10) -> dict[str, Finding]:
    return {finding.subject: finding for finding in store.check(Deadline.after(seconds))}


def test_a_healthy_controller_is_found_healthy_without_a_write(open_store: OpenStore) -> None:
    with Controller(uses_tls=True) as controller:
        controller.add_row("a.example.com", "A", "192.0.2.1")
        controller.add_row("b.example.com", "A", "192.0.2.1", enabled=False)
        findings = found(open_store(controller, ca_cert=controller.ca_pem_path))

        assert [finding.grade for finding in findings.values() if finding.subject != "writing"] == [Grade.OK] * 9
        assert findings["writing"].grade is Grade.WARNING
        assert findings["version"].detail == "Network application 10.4.57"
        assert findings["API"].detail == "integration, chosen automatically"
        assert findings["records"].detail.startswith("2 in all (2 A); 1 disabled")
        assert set(controller.calls.writes.values()) == {0}


def test_rows_that_share_an_id_are_reported_with_the_api_that_may_tell_them_apart(open_store: OpenStore) -> None:
    """After a firmware upgrade, the older API, over which they were created, still does."""
    with Controller() as controller:
        controller.quirks.shared_bucket_ids = True
        for name in ("a.example.com", "b.example.com"):
            controller.add_row(name, "A", "192.0.2.1", made_by="v2")
        finding = found(open_store(controller))["row ids"]

        assert finding.grade is Grade.WARNING
        assert finding.detail.startswith("2 rows share")
        assert "UNIFI_API=v2" in finding.remedy
        assert "row ids" not in found(open_store(controller, api="v2"))


def test_a_refused_connection_ends_the_check_with_a_remedy(controller: Controller, open_store: OpenStore) -> None:
    store = open_store(controller)
    controller.stop()
    findings = found(store)

    assert list(findings) == ["address", "connection"]
    assert findings["connection"].grade is Grade.FAILED
    assert "UNIFI_HOST" in findings["connection"].remedy


def test_an_unknown_certificate_is_shown_with_the_option_to_set(open_store: OpenStore) -> None:
    with Controller(uses_tls=True) as controller:
        finding = found(open_store(controller))["TLS"]

        assert finding.grade is Grade.FAILED
        assert controller.fingerprint_sha256.upper() in finding.detail.replace(":", "")
        assert "UNIFI_TLS_FINGERPRINT" in finding.remedy


def test_pinned_and_unverified_certificates_are_told_apart(open_store: OpenStore) -> None:
    with Controller(uses_tls=True) as controller:
        pinned = found(open_store(controller, tls_fingerprint=controller.fingerprint_sha256))["TLS"]
        other = found(open_store(controller, tls_fingerprint="ab" * 32))["TLS"]
        skipped = found(open_store(controller, skip_tls_verify=True))["TLS"]

        assert [pinned.grade, other.grade, skipped.grade] == [Grade.OK, Grade.FAILED, Grade.WARNING]


def test_a_certificate_that_only_mentions_the_pinned_fingerprint_is_not_taken_for_it() -> None:
    pinned = "ab" * 32
    with tls_peer(trustme.CA(organization_name=pinned.upper())) as url:
        settings = UnifiSettings(base_url=url, api_key=Secret("k"), tls_fingerprint=pinned)
        store = UnifiStore(settings, lambda *_: None, lambda: None)
        finding = found(store)["TLS"]
        store.close()

    assert pinned.upper() in finding.detail
    assert finding.grade is Grade.FAILED


@contextlib.contextmanager
def tls_peer(authority: trustme.CA) -> Iterator[str]:
    """The URL of a server that shakes hands with a certificate of `authority`, and then closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_a_refused_key_fails_the_check_of_the_credentials(controller: Controller, open_store: OpenStore) -> None:
    for api in ("auto", "v2", "integration"):
        findings = found(open_store(controller, api=api, flavour="os", api_key=Secret("wrong")))

        assert list(findings)[-1] == "credentials"
        assert findings["credentials"].grade is Grade.FAILED


@pytest.mark.parametrize("flavour", ["auto", "classic"])
def test_the_remedy_for_a_key_says_that_a_self_hosted_application_takes_none(
    open_store: OpenStore, flavour: str
) -> None:
    """A key can be created at unifi.ui.com, so people try one."""
    with Controller(flavour=Flavour.CLASSIC) as controller:
        finding = found(open_store(controller, flavour=flavour))["credentials"]

        assert finding.grade is Grade.FAILED
        assert "a self-hosted application takes none, set UNIFI_USER and UNIFI_PASS there" in finding.remedy
        assert "not at unifi.ui.com" in finding.remedy


def test_the_remedy_for_a_refused_user_names_users_and_not_keys(controller: Controller, open_store: OpenStore) -> None:
    store = open_store(controller, user=controller.username, password=Secret("wrong"))
    finding = found(store)["credentials"]

    assert finding.grade is Grade.FAILED
    assert "UNIFI_USER" in finding.remedy
    assert "key" not in finding.remedy


def test_a_wrong_site_is_shown_with_the_existing_ones(open_store: OpenStore) -> None:
    with Controller(sites=("default", "branch")) as controller:
        finding = found(open_store(controller, site="home"))["site"]

        assert finding.grade is Grade.FAILED
        assert "branch (Branch)" in finding.detail + finding.remedy


@pytest.mark.parametrize("credentials", ["key", "user"])
@pytest.mark.parametrize("status", [200, 401])
def test_a_site_that_the_controller_refuses_like_a_missing_login_is_shown_as_a_wrong_site(
    controller: Controller, open_store: OpenStore, credentials: str, status: int
) -> None:
    user = {"user": controller.username, "password": Secret(controller.password)}
    settings: dict[str, Any] = user if credentials == "user" else {}
    body = '{"meta":{"rc":"error","msg":"api.err.NoSiteContext"},"data":[]}'
    controller.fault(Reply(status=status, body=body), "list", api="v2")
    finding = found(open_store(controller, api="v2", flavour="os", **settings))["site"]

    assert finding.grade is Grade.FAILED
    assert "UNIFI_SITE" in finding.remedy


@pytest.mark.parametrize(("flavour", "simulated"), [("os", Flavour.UNIFI_OS), ("classic", Flavour.CLASSIC)])
def test_a_wrong_site_is_shown_with_the_place_of_its_name_if_the_api_cannot_list_sites(
    open_store: OpenStore, flavour: str, simulated: Flavour
) -> None:
    with Controller(flavour=simulated) as controller:
        user = {"user": controller.username, "password": Secret(controller.password)}
        settings: dict[str, Any] = user if flavour == "classic" else {}
        finding = found(open_store(controller, api="v2", flavour=flavour, site="nope", **settings))["site"]

        assert finding.grade is Grade.FAILED
        assert "in the address of the controller's pages" in finding.remedy
        assert "dnswebhook check" not in finding.detail + finding.remedy


def test_a_wrong_flavour_is_shown(controller: Controller, open_store: OpenStore) -> None:
    findings = found(open_store(controller, flavour="classic"))

    assert list(findings.values())[-1].grade is Grade.FAILED
    assert "UNIFI_FLAVOUR" in list(findings.values())[-1].detail


def test_a_check_of_a_hanging_or_restarting_controller_raises_nothing(
    controller: Controller, open_store: OpenStore
) -> None:
    for effect in (Hang(), faults.bad_gateway(), faults.garbage(), faults.rate_limited("300")):
        controller.faults.clear()
        controller.fault(effect)
        findings = found(open_store(controller), seconds=1)

        assert list(findings.values())[-1].grade is Grade.FAILED


@pytest.mark.parametrize(
    "effect", [Hang(), faults.rate_limited("300"), Reply(status=503), Reset()], ids=["hangs", "429", "503", "resets"]
)
@pytest.mark.parametrize("struck", ["any", "list"])
@pytest.mark.parametrize("api", ["v2", "integration"])
def test_the_remedy_for_a_busy_controller_is_to_wait_and_not_to_change_the_settings(
    controller: Controller, open_store: OpenStore, effect: faults.Effect, api: str, struck: str
) -> None:
    controller.fault(effect, struck)
    findings = found(open_store(controller, api=api, flavour="os"), seconds=1)

    finding = list(findings.values())[-1]
    assert finding.grade is Grade.FAILED
    assert finding.subject == "controller"
    assert "wait some minutes" in finding.remedy
    assert "UNIFI_" not in finding.remedy
