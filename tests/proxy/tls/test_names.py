"""Which hosts a certificate is for, and which of several is for a host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tls.names import CertificateNames, NameIndex

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
def test_hosts_are_covered_as_the_standard_says(pattern: str, host: str, is_covered: bool) -> None:
    assert CertificateNames((pattern,), (), ()).covers_host(host) is is_covered


def test_an_ip_is_covered_by_the_ip_alone() -> None:
    names = CertificateNames(("10.0.0.1", "*.0.0.1"), (), ("::1",))

    assert not names.covers_host("10.0.0.1")
    assert names.covers_host("0:0:0:0:0:0:0:1")


@given(st.text("ab.*", max_size=8), st.text("ab.", min_size=1, max_size=8))
def test_a_pattern_without_star_covers_itself_only(pattern: str, host: str) -> None:
    if CertificateNames((pattern,), (), ()).covers_host(host) and "*" not in pattern:
        assert pattern.rstrip(".") == host.rstrip(".")


def test_the_certificate_that_names_the_host_comes_before_those_with_wildcards() -> None:
    names = [("*.a.example",), ("b.a.example", "c.example"), ("B.a.example",), ("*.a.example", "d.example")]
    index = NameIndex(CertificateNames(dns, (), ()) for dns in names)

    assert index.places_of("b.a.example") == (1, 2)
    assert index.places_of("x.a.example") == (0, 3)
    assert index.places_of("d.example") == (3,)
    assert index.places_of("a.example") == ()
    assert index.places_of("*.a.example") == ()


@given(st.lists(st.lists(LABELS, max_size=3), max_size=4), LABELS)
def test_the_index_covers_what_one_of_its_certificates_covers(dns: list[list[str]], host: str) -> None:
    certificates = [CertificateNames(tuple(names), (), ()) for names in dns]
    covering = {place for place, names in enumerate(certificates) if names.covers_host(host)}
    found = NameIndex(certificates).places_of(host)

    assert set(found) <= covering
    assert bool(found) == bool(covering)
