"""How certificates, keys and authorities are validated before a document is accepted."""

import datetime
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

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
        ({"certificates": [{**A, "certificate": "nothing"}]}, r"tls\.certificates\[0\]\.certificate: .*leaf first"),
        ({"certificates": [A], "clientValidation": {"ca": "nothing"}}, r"tls\.clientValidation\.ca: "),
    ],
    ids=["another key", "no certificate", "no authority"],
)
def test_unusable_settings_are_refused_with_their_path(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(UnusableTLS, match=expected) as refused:
        check(listener_tls(**settings))
    assert "PRIVATE KEY" not in str(refused.value)


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it() -> None:
    key = serialization.load_pem_private_key(A["privateKey"].encode(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    with pytest.raises(UnusableTLS, match=r"tls\.certificates\[0\]\.privateKey: .*unencrypted"):
        check(listener_tls(certificates=[{**A, "privateKey": locked.decode()}]))


def test_the_error_about_a_short_or_mismatched_key_says_what_is_wanted() -> None:
    short, other = (pair_of(rsa.generate_private_key(65537, bits)) for bits in (1024, 2048))

    with pytest.raises(UnusableTLS, match=r"EE_KEY_TOO_SMALL, a key too short .* want ECDSA"):
        check(listener_tls(certificates=[short]))
    with pytest.raises(UnusableTLS, match=r"NO_CERTIFICATE_ASSIGNED, the key is not of the same kind .* leaf first"):
        check(listener_tls(certificates=[{**A, "privateKey": other["privateKey"]}]))


def pair_of(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> dict[str, str]:
    """A certificate that the key has signed for itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.example")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return {
        "certificate": builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(),
        "privateKey": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    }


def test_a_certificate_whose_names_cannot_be_read_is_refused() -> None:
    """OpenSSL accepts it, but it would never be served to a client."""
    broken = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x03\x82\x01\xff")
    pair = pair_of(ec.generate_private_key(ec.SECP256R1()), broken)
    with pytest.raises(UnusableTLS, match=r"tls\.certificates\[1\]\.certificate: cannot be read"):
        check(listener_tls(certificates=[A, pair]))
