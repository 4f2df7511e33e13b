"""Which JSON a client gets, and what is refused as clearly foreign."""

import pytest

from dnswebhook.mediatypes import MEDIA_TYPE, is_acceptable, is_supported_content_type, prefers_bare


def test_the_media_type_is_the_one_that_external_dns_compares() -> None:
    assert MEDIA_TYPE == "application/external.dns.webhook+json;version=1"


@pytest.mark.parametrize(
    "accept",
    [
        MEDIA_TYPE,
        "application/external.dns.webhook+json; version=1",
        "Application/External.DNS.Webhook+JSON",
        "text/html, application/external.dns.webhook+json ;version=1 ; q=0.5",
        "application/json, application/external.dns.webhook+json;version=1",
        "application/json;q=0.5,application/external.dns.webhook+json;version=1;q=0.9",
        "application/external.dns.webhook+json;version=1;q=oops",
    ],
)
def test_naming_the_webhook_media_type_asks_for_the_bare_array(accept: str) -> None:
    assert prefers_bare(accept)
    assert is_acceptable(accept)


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/*",
        "application/json",
        "application/external.dns.webhook+json;q=0",
        "application/json, application/external.dns.webhook+json;version=1;q=0.1",
    ],
)
def test_otherwise_the_list_is_wrapped(accept: str | None) -> None:
    assert not prefers_bare(accept)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, True),
        ("", True),
        ("*/*", True),
        ("application/*;q=0.1", True),
        ("application/vnd.api+json", True),
        ("text/json", True),
        ("nonsense", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("text/plain", False),
        ("text/html, image/png", False),
        ("multipart/form-data", False),
        ("text/html,application/xhtml+xml", False),
    ],
)
def test_only_clearly_foreign_types_are_not_acceptable(accept: str | None, wanted: bool) -> None:
    assert wanted == is_acceptable(accept)


@pytest.mark.parametrize(
    ("content_type", "wanted"),
    [
        (None, True),
        ("", True),
        (MEDIA_TYPE, True),
        ("application/json; charset=utf-8", True),
        ("APPLICATION/JSON", True),
        ("application/problem+json", True),
        ("application/octet-stream", True),
        ("text/plain", False),
        ("Text/HTML; charset=utf-8", False),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=x", False),
        ("image/png", False),
    ],
)
def test_only_clearly_foreign_bodies_are_unsupported(content_type: str | None, wanted: bool) -> None:
    assert wanted == is_supported_content_type(content_type)
