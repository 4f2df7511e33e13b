"""Which hosts a certificate covers, and which of several certificates is chosen for a host."""

import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from proxy.document import Certificate, ListenerTLS
from proxy.doors.tls import check
from proxy.tls.contexts import UnusableTLS
from proxy.tls.names import CertificateNames, NameIndex, names_of, names_of_first
from proxy.tls.validity import validity_of_first

LABELS = st.lists(st.sampled_from(["a", "b", "A", "*"]), min_size=1, max_size=4).map(".".join)


@pytest.mark.parametrize(
    ("pattern", "host", "is_covered"),
    [
        ("a.example", "a.example", True),
        ("A.Example", "a.example", True),
        ("a.example.", "a.example", True),
        ("a.example", "b.a.example", False),
        ("*.a.example", "b.a.example", True),
        ("*.a.example", "a.example", False),
        ("*.a.example", "c.b.a.example", False),
        ("*.a.example", ".a.example", False),
        ("*.example", "a.example", False),
        ("*", "a", False),
        ("b*.a.example", "bc.a.example", False),
        ("*.*.example", "b.a.example", False),
        ("b.*.example", "b.a.example", False),
        ("b.a.example", "c.a.example", False),
        ("bb.a.example", "c.a.example", False),
        ("", "", False),
    ],
)
def test_a_name_covers_its_host_and_a_leftmost_wildcard_covers_one_label(
    pattern: str, host: str, is_covered: bool
) -> None:
    assert CertificateNames((pattern,), (), ()).covers_host(host) is is_covered


def test_only_an_ip_address_name_covers_an_ip_address() -> None:
    names = CertificateNames(("10.0.0.1", "*.0.0.1"), (), ("::1",))

    assert not names.covers_host("10.0.0.1")
    assert names.covers_host("0:0:0:0:0:0:0:1")


@given(st.text("ab.*", max_size=8), st.text("ab.", min_size=1, max_size=8))
def test_a_name_without_a_wildcard_covers_itself_only(pattern: str, host: str) -> None:
    if CertificateNames((pattern,), (), ()).covers_host(host) and "*" not in pattern:
        assert pattern.rstrip(".") == host.rstrip(".")


def test_the_certificate_that_names_the_host_is_preferred_over_wildcards() -> None:
    names = [("*.a.example",), ("b.a.example", "c.example"), ("B.a.example",), ("*.a.example", "d.example")]
    index = NameIndex(CertificateNames(dns, (), ()) for dns in names)

    assert index.places_of("b.a.example") == (1, 2)
    assert index.places_of("x.a.example") == (0, 3)
    assert index.places_of("d.example") == (3,)
    assert index.places_of("a.example") == ()
    assert index.places_of("*.a.example") == ()


@given(st.lists(st.lists(LABELS, max_size=3), max_size=4), LABELS)
def test_the_index_covers_a_host_that_one_of_its_certificates_covers(dns: list[list[str]], host: str) -> None:
    certificates = [CertificateNames(tuple(names), (), ()) for names in dns]
    covering = {place for place, names in enumerate(certificates) if names.covers_host(host)}
    found = NameIndex(certificates).places_of(host)

    assert set(found) <= covering
    assert bool(found) == bool(covering)


PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PARTY = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, bytes.fromhex("3007 a505 a103 0c0178"))
"""A certificate's name of a kind that `cryptography` does not know, an ediPartyName."""


def certificate_with(extension: x509.ExtensionType) -> tuple[x509.Certificate, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a.example")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2060, 1, 1, tzinfo=UTC))
        .add_extension(extension, critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def test_a_certificate_with_an_unreadable_name_type_is_refused_with_its_path() -> None:
    """It was answered 500, since the exception raised is not a ValueError."""
    certificate, key = certificate_with(PARTY)

    with pytest.raises(UnusableTLS, match=r"certificates\[0\].certificate: cannot be read: "):
        check(ListenerTLS((Certificate(certificate.public_bytes(PEM).decode(), key),)))


def test_a_certificate_of_an_unknown_x509_version_cannot_be_read() -> None:
    certificate, _ = certificate_with(x509.SubjectAlternativeName([x509.DNSName("a.example")]))
    der = certificate.public_bytes(DER)
    version = bytes.fromhex("a003 020102")
    assert der.count(version) == 1

    with pytest.raises(ValueError, match="9 is not a valid X509 version"):
        names_of(der.replace(version, bytes.fromhex("a003 020109")))


def test_a_certificate_that_expired_in_the_year_0_has_expired() -> None:
    certificate, _ = certificate_with(x509.SubjectAlternativeName([x509.DNSName("a.example")]))
    der = certificate.public_bytes(DER).replace(b"20600101000000Z", b"00000101000000Z")
    chain = ssl.DER_cert_to_PEM_cert(der)

    assert names_of_first(chain).dns == ("a.example",)
    assert validity_of_first(chain).end_s == datetime.min.replace(tzinfo=UTC).timestamp()
