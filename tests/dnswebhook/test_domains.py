"""Which names are managed: external-dns's own filter rules as tables, and the names that are never touched."""

import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.domains import DomainFilter, ProtectedNames, unicode_name


@pytest.mark.parametrize(
    ("include", "exclude", "name", "expected"),
    [
        ([], [], "anything.example.org", True),
        (["example.com"], [], "example.com", True),
        (["example.com"], [], "app.example.com", True),
        (["example.com"], [], "App.Example.COM.", True),
        (["example.com"], [], "a.b.example.com", True),
        (["example.com"], [], "notexample.com", False),
        (["example.com"], [], "example.com.org", False),
        (["example.com"], [], "com", False),
        (["example.com"], [], "a-example.com", False),
        ([".example.com"], [], "app.example.com", True),
        ([".example.com"], [], "example.com", False),
        (["Example.COM."], [], "app.example.com", True),
        ([" example.com "], [], "app.example.com", True),
        (["example.com", "example.org"], [], "app.example.org", True),
        ([], ["example.com"], "app.example.com", False),
        ([], ["example.com"], "app.example.org", True),
        (["example.com"], ["private.example.com"], "private.example.com", False),
        (["example.com"], ["private.example.com"], "x.private.example.com", False),
        (["example.com"], ["private.example.com"], "public.example.com", True),
        (["example.com"], [".private.example.com"], "private.example.com", True),
        (["bücher.example"], [], "xn--bcher-kva.example", True),
        (["xn--bcher-kva.example"], [], "a.bücher.example", True),
        (["BÜCHER.example"], [], "bücher.example.", True),
        (["example.com"], [], "*.example.com", True),
        ([".Example.COM."], [], "app.example.com", True),
        ([".bücher.example"], [], "a.xn--bcher-kva.example", True),
        (["_tcp.example.com"], [], "_sip._tcp.example.com", True),
        (["2.0.192.in-addr.arpa"], [], "1.2.0.192.in-addr.arpa", True),
        (["lan"], [], "nas.lan", True),
    ],
)
def test_lists_match_suffixes_on_a_label_boundary(
    include: list[str], exclude: list[str], name: str, expected: bool
) -> None:
    assert expected is DomainFilter(include, exclude).matches(name)


@pytest.mark.parametrize(
    ("include", "exclude", "name", "expected"),
    [
        (r"\.example\.com$", "", "app.example.com", True),
        (r"\.example\.com$", "", "App.Example.com.", True),
        (r"\.example\.com$", "", "example.com", False),
        (r"example", "", "an-example.org", True),
        (r"^app", "", "my.app", False),
        (r"\.example\.com$", r"^tmp", "tmp-1.example.com", False),
        ("", r"^tmp", "tmp-1.example.com", False),
        ("", r"^tmp", "app.example.com", True),
        (r"bücher", "", "xn--bcher-kva.example", True),
        (r"xn--", "", "xn--bcher-kva.example", False),
    ],
)
def test_expressions_are_searched_in_the_unicode_form_with_exclusion_first(
    include: str, exclude: str, name: str, expected: bool
) -> None:
    assert expected is DomainFilter(regex_include=include, regex_exclude=exclude).matches(name)


@pytest.mark.parametrize(
    "entry",
    [
        "*.example.com",
        "*",
        "a.example b.example",
        "https://example.com",
        "a.example;b.example",
        "example.com/",
        "/example.com",
        '"example.com"',
        "example..com",
        "..example.com",
        "example.com..",
        ".",
        "..",
        " . ",
        "",
        "me@example.com",
        "bücher .example",
        "bücher.example/",
        "a" * 64,
        "x" * 100_000,
    ],
)
def test_an_entry_that_is_not_a_domain_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"^DOMAIN_FILTER: .* is not a domain, want domains separated by commas"):
        DomainFilter([entry])
    with pytest.raises(ValueError, match=r"^EXCLUDE_DOMAIN_FILTER: .* is not a domain"):
        DomainFilter(exclude=["good.example", entry])


@pytest.mark.parametrize(
    "pattern",
    [
        "nas.example *.lan",
        '"nas.example',
        "'*.lan'",
        r"^nas\.lan$",
        "(nas|tv).lan",
        "{nas,tv}.lan",
        "[^n]as.lan",
        "https://nas.lan",
        "nas.lan:443",
        "n\u2003as.lan",
        "\udcfc.lan",
    ],
)
def test_a_protected_pattern_that_can_match_no_name_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^DNSWEBHOOK_PROTECT: .* matches no name, want shell patterns"):
        ProtectedNames(["nas.example", pattern])


@pytest.mark.parametrize("pattern", ['"^app"', "'^app'", '"'])
def test_a_regular_expression_in_quotes_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^REGEXP_DOMAIN_FILTER: .* is in quotes"):
        DomainFilter(regex_include=pattern)
    with pytest.raises(ValueError, match=r"^REGEXP_DOMAIN_FILTER_EXCLUSION: .* is in quotes"):
        DomainFilter(regex_exclude=pattern)


@pytest.mark.parametrize("lists", [{"include": ["a.example"]}, {"exclude": ["a.example"]}])
@pytest.mark.parametrize("expressions", [{"regex_include": "x"}, {"regex_exclude": "x"}])
def test_lists_and_expressions_cannot_be_mixed(lists: dict[str, list[str]], expressions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="only one kind: use DOMAIN_FILTER"):
        DomainFilter(**lists, **expressions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?=app)",
        r"(?!app)",
        r"(?<=a)b",
        r"(?<!a)b",
        r"(?P=name)",
        r"(a)\1",
        r"(?>a+)b",
        r"(a)?(?(1)b|c)",
        r"a++",
        r"a*+",
        r"a{2}+",
        r"(?#note)a",
        r"(?x)a b",
        r"(?ix)a b",
        r"(?s-x:a b)",
        r"(?s-ix:a b)",
        r"app\Z",
        r"\u0041",
        r"\ü",
        r"[a\ü]",
        r"(?P<größe>a)",
    ],
)
def test_an_expression_that_external_dns_could_not_read_is_refused_at_our_start(pattern: str) -> None:
    with pytest.raises(ValueError, match="which external-dns \\(RE2\\) does not know"):
        DomainFilter(regex_include=pattern)


@pytest.mark.parametrize("pattern", [r"[[:alpha:]]+", r"[[:^digit:]x]"])
def test_an_expression_with_another_meaning_in_python_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="write it with a character class"):
        DomainFilter(regex_exclude=pattern)


@pytest.mark.parametrize("pattern", [r"a{,2}", r"a{,}", r"a{02}", r"a{01,}", r"a{1,02}"])
def test_a_count_that_external_dns_takes_for_text_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="takes for literal text: write a count such as"):
        DomainFilter(regex_include=pattern)


@pytest.mark.parametrize("pattern", [r"a{1001}", r"a{1001,}", r"a{2,1001}", r"a{2000,3000}", r"a{99999}"])
def test_a_count_that_external_dns_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="refuses: write counts of at most 1000"):
        DomainFilter(regex_include=pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (r"(?i)^BÜCHER\.", "bücher.example", True),
        (r"^BÜCHER\.", "bücher.example", False),
        (r"(?i:BÜ)cher", "bücher.example", True),
        (r"(?i:B)Ücher", "bücher.example", False),
        (r"(?i)Ü+$", "xüü", True),
        (r"(?i)^[A-ZÄÖÜ]+$", "bücher", True),
        (r"(?i)^[^Ü]+$", "bücher", False),
        (r"(?i)^ΣΟΦΟΣ$", "σοφος", True),
        (r"(?i)^ISPARTA", "ısparta", False),
        (r"(?i)^ı", "isparta", False),
        (r"(?i)^[ı]", "isparta", False),
        (r"^\w+$", "bücher", False),
        (r"^[\wÜ]+$", "bücher", False),
        (r"(?i)^[\wÜ]+$", "bücher", True),
        (r"(?i)^[\wÜ]+$", "bùcher", False),
        (r"^[\Wb]+$", "bù", True),
        (r"(?i)^[\WÜ]+$", "üù", True),
        (r"(?i)^[]\]Ü]$", "ü", True),
    ],
)
def test_letters_in_either_case_and_classes_of_ascii_match_as_in_external_dns(
    pattern: str, name: str, expected: bool
) -> None:
    """RE2 says the same of each."""
    assert expected is DomainFilter(regex_include=pattern).matches(name)


def test_an_expression_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match=r"REGEXP_DOMAIN_FILTER: .* it is not UTF-8"):
        DomainFilter(regex_include=os.fsdecode(b"gr\xfc"))


@pytest.mark.parametrize("pattern", ["(", "[", "*a", r"\p{Greek}", r"a\y", r"\Qa\E"])
def test_an_expression_that_cannot_be_read_is_refused_with_the_place(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"is not valid: .* at position"):
        DomainFilter(regex_include=pattern)


def test_the_end_anchor_of_re2_is_accepted_from_python_3_14_on_and_refused_before() -> None:
    pattern = r"^a\z"
    if sys.version_info < (3, 14):
        with pytest.raises(ValueError, match=r"is not valid: .* at position"):
            DomainFilter(regex_include=pattern)
    else:
        domains = DomainFilter(regex_include=pattern)
        assert [domains.matches(name) for name in ("a", "a.example")] == [True, False]


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?:app|web)-\d{1,3}\.example\.com$",
        r"(?i)App",
        r"(?P<zone>lan)",
        r"(?P<zone>ü)\.",
        r"a+?b",
        r"[a-z*]{2,}",
        r"\bapp",
        r"a{0,10}b{0}c{10}",
        r"a{1000}b{0,1000}c{1000,}",
        r"a\{2000\}",
    ],
)
def test_an_expression_that_external_dns_and_python_can_read_is_accepted(pattern: str) -> None:
    assert pattern == DomainFilter(regex_include=pattern).regex_include


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("App.Example.com.", "app.example.com"),
        ("xn--bcher-kva.example", "bücher.example"),
        ("BÜCHER.example", "bücher.example"),
        ("*.bücher.example", "*.bücher.example"),
        ("xn--a.example", "xn--a.example"),
        ("xn--\u00fc.example", "xn--\u00fc.example"),
        ("no good name", "no good name"),
    ],
)
def test_the_form_that_is_matched_is_lower_case_unicode(name: str, expected: str) -> None:
    assert expected == unicode_name(name)


@given(st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_can_be_matched(name: str) -> None:
    unicode_name(name)
    for domain_filter in (DomainFilter(["example.com"]), DomainFilter(regex_exclude="^a")):
        assert domain_filter.matches(name) in (True, False)


@given(st.sampled_from(["example.com", "a.example.com", "x.a.example.com", "bücher.example"]))
@settings(deadline=None)
def test_the_subdomains_of_an_excluded_domain_are_excluded_too(domain: str) -> None:
    domain_filter = DomainFilter([domain], [domain])

    assert not domain_filter.matches(domain)
    assert not domain_filter.matches(f"app.{domain}")


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        ([], "nas.lan", False),
        (["nas.lan"], "nas.lan", True),
        (["NAS.lan."], "nas.lan", True),
        ([" nas.lan "], "nas.lan", True),
        (["nas.lan"], "xnas.lan", False),
        (["nas.lan"], "nas.lan.example.com", False),
        (["nas.lan"], "nasxlan", False),
        (["*.lan"], "a.b.lan", True),
        (["*.lan"], "lan", False),
        (["host-?.lan"], "host-1.lan", True),
        (["host-?.lan"], "host-12.lan", False),
        (["host-[12].lan"], "host-2.lan", True),
        (["host-[12].lan"], "host-3.lan", False),
        (["a.lan", "b.lan"], "b.lan", True),
        (["bücher.example"], "xn--bcher-kva.example", True),
        (["*.bücher.example"], "a.xn--bcher-kva.example", True),
        (["nas-*.bücher.example"], "nas-1.xn--bcher-kva.example", True),
        (["nas-*.bücher.*"], "nas-1.xn--bcher-kva.example", True),
        (["NAS.*.BÜCHER.example."], "nas.a.xn--bcher-kva.example", True),
        (["b?cher.example"], "xn--bcher-kva.example", True),
        (["bu\u0308cher-*.example"], "xn--bcher-1-n2a.example", True),
        (["xn--bcher-*.example"], "xn--bcher-kva.example", True),
        (["nas-*.bücher.example"], "nas-1.example", False),
        (["nas-*.bücher.example"], "a.xn--bcher-kva.example", False),
        (["a.example"], "xn--bcher-kva.example", False),
        (["*"], "anything", True),
    ],
)
def test_protected_names_are_shell_patterns_over_canonical_names(
    patterns: list[str], name: str, expected: bool
) -> None:
    assert expected is ProtectedNames(patterns).matches(name)
