"""Secrets and ConfigMaps into certificates: what is accepted here, OpenSSL accepts too, and no key is shown."""

import base64
import datetime
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.document import ListenerTLS
from proxy.doors.tls import check
from tests.support.certificates import rsassa_pss
from tests.support.limits import open_files_limited
from tests.tunnelgw.translate.pki import authority_pem, in_base64, secret_data
from tests.tunnelgw.translate.world import queries_of
from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.gateways import GatewaySpec, Listener, ListenerTls
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, ObjectMeta
from tunnelgw.model.refs import ObjectRef
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.translate.certificates import (
    BadReference,
    CaBundle,
    KeyPair,
    bundle_in_config_map,
    bundle_in_secret,
    pair_in_secret,
)
from tunnelgw.translate.listenertls import TlsDraft, tls_draft
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import ObjectId

KEY = Key("apps", "s")
META = ObjectMeta("s", "apps")
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PLAIN = serialization.NoEncryption()


def pair_in(data: dict[str, str] | None, type_: str = "kubernetes.io/tls") -> KeyPair | BadReference:
    return queries_of(Snapshot.of([(Kind.SECRET, Secret(META, type_, data))])).ask(pair_in_secret, KEY)


def problem_in(data: dict[str, str] | None) -> str:
    found = pair_in(data)
    assert isinstance(found, BadReference)
    return found.message


def issue(key: Any, signing_key: Any = None, *names: str, issuer: str = "ca") -> dict[str, str]:
    """A leaf, signed by itself unless there is another key, of a year that is over."""
    signing_key = signing_key or key
    subject = common_name("leaf")
    year = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    signer = subject if signing_key is key else common_name(issuer)
    builder = x509.CertificateBuilder(signer, subject, key.public_key(), 1, year, year + datetime.timedelta(days=365))
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    plain = isinstance(signing_key, ed25519.Ed25519PrivateKey)
    certificate = builder.sign(signing_key, None if plain else hashes.SHA256())
    return {"tls.crt": in_base64(certificate.public_bytes(PEM)), "tls.key": in_base64(key_text(key))}


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def with_sha1(data: dict[str, str]) -> dict[str, str]:
    """As if signed by RSA with SHA-1, which cryptography does not do any more. Its signature is not verified."""
    der = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])).public_bytes(serialization.Encoding.DER)
    sha256, sha1 = (bytes.fromhex(f"2a864886f70d0101{last}") for last in ("0b", "05"))
    changed = x509.load_der_x509_certificate(der.replace(sha256, sha1))
    return {**data, "tls.crt": in_base64(changed.public_bytes(PEM))}


def with_a_name_that_is_no_text(pem: bytes) -> bytes:
    """As if made by hand: its signature is not verified."""
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    changed = x509.load_der_x509_certificate(der.replace(b"\x0c\x04leaf", b"\x0c\x04\xff\xff\xff\xff"))
    return changed.public_bytes(PEM)


def key_text(key: PrivateKeyTypes, encryption: serialization.KeySerializationEncryption = PLAIN) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption)


RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
RSA_CERTIFICATE = issue(RSA)["tls.crt"]
RSA_PEM = x509.load_pem_x509_certificates(base64.b64decode(RSA_CERTIFICATE))[0].public_bytes(PEM)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: secret_data("a.example"), id="with its chain"),
        pytest.param(lambda: issue(RSA), id="RSA, expired"),
        pytest.param(lambda: issue(P256), id="P-256"),
        pytest.param(lambda: issue(ec.generate_private_key(ec.SECP384R1())), id="P-384"),
        pytest.param(lambda: issue(ed25519.Ed25519PrivateKey.generate()), id="Ed25519"),
    ],
)
def test_an_accepted_certificate_can_be_served(data: Any) -> None:
    found = pair_in(data())

    assert isinstance(found, KeyPair)
    check(ListenerTLS((found.certificate,)))


def test_an_rsassa_pss_key_stays_one_and_can_be_served() -> None:
    """Re-encoded as an RSA key, it would not match its certificate any more."""
    pss = rsassa_pss("a.example")
    text = f"subject=/CN=leaf\n{pss['privateKey']}\nnot a key\n"

    found = pair_in(secret_of(pss["certificate"], text))

    assert isinstance(found, KeyPair)
    assert found.names == ("a.example",)
    assert found.certificate.private_key == pss["privateKey"]
    check(ListenerTLS((found.certificate,)))


def test_an_rsa_key_for_an_rsassa_pss_certificate_is_reported_with_what_is_wanted() -> None:
    pss = rsassa_pss("a.example")
    key = serialization.load_pem_private_key(pss["privateKey"].encode(), None)
    plain = key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN)

    problem = problem_in(secret_of(pss["certificate"], plain.decode()))

    assert "the key is not of the same kind as the first certificate's" in problem
    assert "the key as it was created, since RSASSA-PSS and RSA keys cannot replace each other" in problem


def secret_of(certificate: str, key: str) -> dict[str, str]:
    return {"tls.crt": in_base64(certificate.encode()), "tls.key": in_base64(key.encode())}


def test_text_around_the_certificates_is_dropped() -> None:
    chain = b"subject=/CN=leaf\n" + RSA_PEM + b"\nnot a certificate\n"
    found = pair_in({**issue(RSA), "tls.crt": in_base64(chain)})

    assert isinstance(found, KeyPair)
    assert found.certificate.certificate.encode() == RSA_PEM


def test_names_are_those_of_the_leaf() -> None:
    found = pair_in(issue(P256, RSA, "A.example", "*.b.example"))

    assert isinstance(found, KeyPair)
    assert found.names == ("a.example", "*.b.example")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "no certificate in PEM under tls.crt"),
        (None, "could not be read yet"),
        ({"tls.crt": "***"}, "no certificate in PEM under tls.crt"),
        ({"tls.crt": in_base64(b"\xff\xfe")}, "no certificate in PEM under tls.crt"),
        ({"tls.crt": RSA_CERTIFICATE}, "no private key in PEM without password under tls.key"),
        ({"tls.crt": RSA_CERTIFICATE, "tls.key": RSA_CERTIFICATE}, "no private key in PEM without password"),
        ({"tls.crt": RSA_CERTIFICATE, "tls.key": in_base64(key_text(P256))}, "does not match the certificate"),
        (
            {
                "tls.crt": in_base64(RSA_PEM + base64.b64decode(issue(P256, RSA)["tls.crt"])),
                "tls.key": in_base64(key_text(P256)),
            },
            "other certificates under tls.crt before that of tls.key, which must come first",
        ),
        (
            {
                "tls.crt": RSA_CERTIFICATE,
                "tls.key": in_base64(key_text(RSA, serialization.BestAvailableEncryption(b"p"))),
            },
            "without password",
        ),
        (issue(rsa.generate_private_key(65537, 1024)), "a key of 1024 bits, want 2048"),
        (issue(ec.generate_private_key(ec.SECP192R1())), "a key on a curve of 192 bits"),
        (with_sha1(issue(P256, RSA)), "a signature by sha1"),
        (issue(x25519.X25519PrivateKey.generate(), RSA), "a kind of key that TLS cannot use"),
    ],
)
def test_an_unusable_pair_is_reported_with_the_reason(data: dict[str, str] | None, problem: str) -> None:
    assert problem in problem_in(data)
    assert problem_in(data).startswith("Secret apps/s ")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({**issue(RSA), "tls.crt": in_base64(with_a_name_that_is_no_text(RSA_PEM))}, id="name"),
        pytest.param(
            {**issue(RSA), "tls.crt": in_base64(RSA_PEM + with_a_name_that_is_no_text(RSA_PEM))}, id="name in the chain"
        ),
    ],
)
def test_a_certificate_that_openssl_refuses_by_rules_of_its_own_is_a_problem_of_its_secret(
    data: dict[str, str],
) -> None:
    assert "that OpenSSL does not present: " in problem_in(data)


def test_sha_1_by_another_key_under_the_same_name_is_refused_where_openssl_refuses_it(tmp_path: Path) -> None:
    """OpenSSL 3.0 does, 3.6 takes the certificate for a self-signed one."""
    data = with_sha1(issue(P256, RSA, issuer="leaf"))
    file = tmp_path / "pair.pem"
    file.write_bytes(base64.b64decode(data["tls.crt"]) + base64.b64decode(data["tls.key"]))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
    except ssl.SSLError:
        assert "that OpenSSL does not present: " in problem_in(data)
    else:
        assert isinstance(pair_in(data), KeyPair)


def test_a_chain_that_is_too_long_for_clients_is_a_problem_of_its_secret() -> None:
    leaf, root = RSA_PEM, x509.load_pem_x509_certificate(authority_pem().encode())
    room = 102_400 - len(x509.load_pem_x509_certificate(leaf).public_bytes(DER))
    fitting = leaf + root.public_bytes(PEM) * (room // len(root.public_bytes(DER)))
    key = {"tls.key": in_base64(key_text(RSA))}

    assert isinstance(pair_in({**key, "tls.crt": in_base64(fitting)}), KeyPair)
    found = problem_in({**key, "tls.crt": in_base64(fitting + root.public_bytes(PEM))})
    assert re.search(r"has a chain of 10[23],\d{3} octets under tls.crt, clients take at most 102,400", found)


def test_a_listener_that_names_a_secret_twice_has_its_certificate_once() -> None:
    ref, again = ObjectRef("s"), ObjectRef("s", namespace="apps")
    listener = Listener("web", 443, "HTTPS", tls=ListenerTls(certificate_refs=(ref, again)))
    owner = ObjectId(Kind.GATEWAY, Key("apps", "gw"))
    queries = queries_of(Snapshot.of([(Kind.SECRET, Secret(META, "kubernetes.io/tls", issue(RSA)))]))

    def draft(view: View, key: Key) -> TlsDraft:
        return tls_draft(view, key, GatewaySpec("", (listener,)), owner, listener)

    assert len(queries.ask(draft, owner.key).pairs) == 1


def test_while_openssl_cannot_be_asked_our_own_rules_decide() -> None:
    data = issue(RSA)
    with open_files_limited(0, 0):
        found = pair_in(data)

    assert isinstance(found, KeyPair)


def test_a_root_that_is_signed_with_sha1_may_stand_in_the_chain() -> None:
    found = pair_in(with_sha1(issue(RSA)))

    assert isinstance(found, KeyPair)
    check(ListenerTLS((found.certificate,)))


def test_a_secret_of_another_type_is_refused() -> None:
    found = pair_in(issue(RSA), "Opaque")

    assert isinstance(found, BadReference)
    assert found.message == "Secret apps/s is of type Opaque, want kubernetes.io/tls"


def test_private_keys_are_in_no_repr() -> None:
    data = issue(RSA)
    found = pair_in(data)
    secret_line = key_text(RSA).decode().splitlines()[5]

    assert isinstance(found, KeyPair)
    assert secret_line in found.certificate.private_key
    assert secret_line not in repr(found)
    assert data["tls.key"][:40] not in repr(Secret(META, "kubernetes.io/tls", data))


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["tls.crt", "tls.key"]), st.text()))
def test_any_text_is_a_problem_and_no_exception(data: dict[str, str]) -> None:
    assert problem_in(data)


def test_a_bundle_has_each_authority_once() -> None:
    text = f"# comment\n{authority_pem()}{authority_pem()}"
    snapshot = Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(META, {"ca.crt": text}))])

    assert queries_of(snapshot).ask(bundle_in_config_map, KEY) == CaBundle(authority_pem())


@pytest.mark.parametrize("label", ["CERTIFICATE", "X509 CERTIFICATE"])
def test_ca_certificates_that_openssl_reads_are_accepted_whatever_their_serial_number(label: str) -> None:
    """Go Daddy's and others of every system's bundle have 0, of which `cryptography` warns."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(authority_pem()))
    at = der.index(b"\xa0\x03\x02\x01\x02\x02") + 7  # behind the version, the number's tag and its length
    der[at : at + 2] = b"\xff\x00"
    odd = ssl.DER_cert_to_PEM_cert(bytes(der))
    text = f"# Größe\n{odd}{authority_pem()}".replace("CERTIFICATE", label)
    snapshot = Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(META, {"ca.crt": text}))])

    assert queries_of(snapshot).ask(bundle_in_config_map, KEY) == CaBundle(odd + authority_pem())


def test_a_truncated_ca_certificate_is_ignored() -> None:
    text = f"{authority_pem()}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERT"
    snapshot = Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(META, {"ca.crt": text}))])

    assert queries_of(snapshot).ask(bundle_in_config_map, KEY) == CaBundle(authority_pem())


def test_a_bundle_with_a_certificate_that_openssl_cannot_read_is_refused() -> None:
    """cryptography can: it decodes the text of a name only on access."""
    text = authority_pem() + with_a_name_that_is_no_text(RSA_PEM).decode()
    found = queries_of(Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(META, {"ca.crt": text}))])).ask(
        bundle_in_config_map, KEY
    )

    assert isinstance(found, BadReference)
    assert found.message == "ConfigMap apps/s has no certificates in PEM under ca.crt"


@settings(deadline=None)
@given(st.dictionaries(st.just("ca.crt"), st.text()))
def test_a_config_map_without_ca_certificates_is_reported_as_such(data: dict[str, str]) -> None:
    found = queries_of(Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(META, data))])).ask(bundle_in_config_map, KEY)

    assert isinstance(found, BadReference)
    assert found.message == "ConfigMap apps/s has no certificates in PEM under ca.crt"


def test_a_config_map_that_could_not_be_read_is_reported_as_such() -> None:
    found = queries_of(Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(META, None))])).ask(bundle_in_config_map, KEY)

    assert isinstance(found, BadReference)
    assert found.message == "ConfigMap apps/s could not be read yet"


@pytest.mark.parametrize("data", ["", "%", base64.b64encode(b"\xff").decode(), base64.b64encode(b"x").decode()])
def test_a_secret_without_ca_certificates_is_reported_as_such(data: str) -> None:
    found = queries_of(Snapshot.of([(Kind.SECRET, Secret(META, "Opaque", {"ca.crt": data}))])).ask(
        bundle_in_secret, KEY
    )

    assert isinstance(found, BadReference)
    assert found.message == "Secret apps/s has no certificates in PEM under ca.crt"


def test_a_secret_with_ca_certificates_that_could_not_be_read_is_reported_as_such() -> None:
    found = queries_of(Snapshot.of([(Kind.SECRET, Secret(META))])).ask(bundle_in_secret, KEY)

    assert isinstance(found, BadReference)
    assert found.message == "Secret apps/s could not be read yet"
