import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreTimeout, StoreUnreachable
from dnswebhook.stores.unifi.settings import UnifiSettings
from dnswebhook.stores.unifi.store import UnifiStore
from tests.dnswebhook.stores.unifi.conftest import OpenStore
from tests.support.controller import Controller


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller(uses_tls=True) as controller:
        yield controller


def presented(controller: Controller) -> str:
    digits = controller.fingerprint_sha256.upper()
    return ":".join(digits[index : index + 2] for index in range(0, 64, 2))


def test_an_unknown_authority_is_refused_with_the_fingerprint_and_both_remedies(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    with pytest.raises(StoreUnreachable, match="was not accepted") as refusal:
        open_store(controller).list_records(deadline)

    for part in (presented(controller), "UNIFI_TLS_FINGERPRINT", "UNIFI_CA_CERT", controller.url):
        assert part in str(refusal.value)
    assert sum(controller.calls.calls.values()) == 0


def test_the_authority_in_a_file_is_accepted(controller: Controller, open_store: OpenStore, deadline: Deadline) -> None:
    store = open_store(controller, ca_cert=controller.ca_pem_path)

    assert store.list_records(deadline).records == ()


def test_the_controllers_own_certificate_in_the_file_stands_for_its_authority(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    """As for curl. It is what `openssl s_client` shows first."""
    path = tmp_path / "leaf.pem"
    parts = urlsplit(controller.url)
    assert parts.hostname is not None
    assert parts.port is not None
    path.write_text(ssl.get_server_certificate((parts.hostname, parts.port)))

    assert open_store(controller, ca_cert=path).list_records(deadline).records == ()


def test_the_error_for_a_ca_file_replaced_since_the_start_says_to_restart(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    """If it is replaced together with the controller's certificate, the file is right, also for `check`."""
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    store = open_store(controller, ca_cert=path)
    path.write_bytes(controller.ca_pem_path.read_bytes())

    with pytest.raises(StoreUnreachable, match=f"reads {path} when it starts: restart it"):
        store.list_records(deadline)
    assert open_store(controller, ca_cert=path).list_records(deadline).records == ()


def test_a_name_that_is_not_in_the_certificate_is_refused(open_store: OpenStore, deadline: Deadline) -> None:
    with Controller(uses_tls=True, certificate_names=("elsewhere.example.com",)) as controller:
        store = open_store(controller, ca_cert=controller.ca_pem_path)

        with pytest.raises(StoreUnreachable, match=r"not valid for.*127\.0\.0\.1"):
            store.list_records(deadline)


def test_a_pinned_certificate_is_accepted_whatever_its_name_and_authority(
    open_store: OpenStore, deadline: Deadline
) -> None:
    with Controller(uses_tls=True, certificate_names=("elsewhere.example.com",)) as controller:
        store = open_store(controller, tls_fingerprint=presented(controller))

        assert store.list_records(deadline).records == ()


def test_another_certificate_than_the_pinned_one_is_refused(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    store = open_store(controller, tls_fingerprint="ab" * 32)

    with pytest.raises(StoreUnreachable, match=f"is not the pinned one.*{presented(controller)}"):
        store.list_records(deadline)
    assert sum(controller.calls.calls.values()) == 0


def test_verification_can_be_switched_off(controller: Controller, open_store: OpenStore, deadline: Deadline) -> None:
    assert open_store(controller, skip_tls_verify=True).list_records(deadline).records == ()


def test_the_error_for_a_port_that_waits_for_plain_http_says_so(open_store: OpenStore, deadline: Deadline) -> None:
    with Controller() as plain:
        store = open_store(plain, base_url=f"https://127.0.0.1:{plain.port}", request_timeout_s=0.3)

        with pytest.raises(StoreTimeout, match=r"no TLS handshake.*speak https"):
            store.list_records(deadline)


def test_an_invalid_or_missing_ca_file_is_refused_at_the_start(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("not a certificate")
    for path, reason in ((empty, "holds no PEM certificate"), (tmp_path / "absent.pem", "cannot be read")):
        settings = UnifiSettings(base_url="https://unifi.lan", api_key=Secret("k"), ca_cert=path)
        with pytest.raises(ValueError, match=reason):
            UnifiStore(settings, lambda *_: None, lambda: None)


def test_a_ca_file_replaces_the_public_authorities(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))

    with pytest.raises(StoreUnreachable, match="was not accepted"):
        open_store(controller, ca_cert=other).list_records(deadline)
