"""What is checked of certificates, keys and authorities before a document is taken."""

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from proxy import document
from proxy.doors.tls import check
from proxy.tls.contexts import UnusableTLS
from tests.proxy.doors.tlsrig import OTHER_CA, A, B, ca_pem


def listener_tls(**tls: Any) -> document.ListenerTLS:
    return msgspec.convert(tls, document.ListenerTLS)


def test_usable_settings_pass_the_check() -> None:
    with_comment = {**A, "certificate": "subject=a.example\n" + A["certificate"]}

    check(listener_tls(certificates=[with_comment, B], clientValidation={"ca": ca_pem(OTHER_CA)}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"certificates": [A, {**A, "privateKey": B["privateKey"]}]}, r"tls\.certificates\[1\]: .*KEY_VALUES_MISMATCH"),
        ({"certificates": [{**A, "certificate": "nothing"}]}, r"tls\.certificates\[0\]: "),
        ({"certificates": [A], "clientValidation": {"ca": "nothing"}}, r"tls\.clientValidation\.ca: "),
    ],
    ids=["another key", "no certificate", "no authority"],
)
def test_unusable_settings_are_refused_with_their_place(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(UnusableTLS, match=expected) as refused:
        check(listener_tls(**settings))
    assert "PRIVATE KEY" not in str(refused.value)


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it() -> None:
    key = serialization.load_pem_private_key(A["privateKey"].encode(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    with pytest.raises(UnusableTLS, match=r"tls\.certificates\[0\]: "):
        check(listener_tls(certificates=[{**A, "privateKey": locked.decode()}]))
