from pathlib import Path
from typing import Any

import pytest

from daemonkit.secret import Secret
from dnswebhook.stores.unifi.address import Flavour
from dnswebhook.stores.unifi.settings import UnifiSettings

KEY = Secret("a-key")
FINGERPRINT = "ab" * 32


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"user": "dns", "password": Secret("p")}, "both UNIFI_API_KEY and UNIFI_USER"),
        ({"api_key": Secret(""), "user": "dns"}, "only one of UNIFI_USER and UNIFI_PASS"),
        ({"api_key": Secret("")}, "no credentials are set"),
        ({"api_key": Secret("a\nb")}, "no API key has"),
        ({"api_key": Secret("Bearer a-key")}, "want the key alone"),
        ({"api_key": Secret('"a-key"')}, "UNIFI_API_KEY is in quotes"),
        ({"api_key": Secret("'a-key'")}, "UNIFI_API_KEY is in quotes"),
        ({"api_key": Secret(""), "user": '"dns"', "password": Secret("p")}, "UNIFI_USER is in quotes"),
        ({"tls_fingerprint": FINGERPRINT, "ca_cert": Path("ca.pem")}, "both UNIFI_TLS_FINGERPRINT and UNIFI_CA_CERT"),
        ({"skip_tls_verify": True, "ca_cert": Path("ca.pem")}, "UNIFI_SKIP_TLS_VERIFY"),
        ({"skip_tls_verify": True, "tls_fingerprint": FINGERPRINT}, "UNIFI_SKIP_TLS_VERIFY"),
        ({"base_url": "http://unifi.lan", "tls_fingerprint": FINGERPRINT}, "begins with http://"),
        ({"base_url": "http://unifi.lan", "ca_cert": Path("ca.pem")}, "begins with http://"),
        ({"tls_fingerprint": "abcd"}, "want 64 hexadecimal digits"),
        ({"api": "integration", "api_key": Secret(""), "user": "u", "password": Secret("p")}, "only UNIFI_API_KEY"),
        ({"api": "integration", "flavour": "classic"}, "does not exist on UNIFI_FLAVOUR=classic"),
        ({"base_url": "https://h/proxy/network", "flavour": "classic"}, "contradicts UNIFI_FLAVOUR=classic"),
        ({"site": "my site"}, "UNIFI_SITE 'my site'"),
        ({"site": ""}, "UNIFI_SITE ''"),
        ({"site": "\udcfc"}, r"UNIFI_SITE '\\udcfc'"),
        ({"api_key": Secret(""), "user": "\udcfc", "password": Secret("p")}, "UNIFI_PASS must be UTF-8"),
        ({"api_key": Secret(""), "user": "dns", "password": Secret("\udcfc")}, "UNIFI_PASS must be UTF-8"),
        ({"base_url": "ftp://unifi.lan"}, "scheme 'ftp'"),
        ({"request_timeout_s": 0.0}, "request timeout above 0 s"),
        ({"api": "v3"}, "'v3' is not a valid ApiChoice"),
    ],
)
def test_contradictions_are_refused_with_the_names_of_the_options(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        UnifiSettings(**{"base_url": "https://unifi.lan", "api_key": KEY, **changes})


@pytest.mark.parametrize(
    "typed",
    [FINGERPRINT, FINGERPRINT.upper(), ":".join(["AB"] * 32), "SHA256:" + FINGERPRINT, f" {FINGERPRINT}\n"],
)
def test_a_fingerprint_is_accepted_in_every_usual_spelling(typed: str) -> None:
    assert UnifiSettings(base_url="unifi.lan", api_key=KEY, tls_fingerprint=typed).tls_fingerprint == FINGERPRINT


@pytest.mark.parametrize(
    ("changes", "flavour"),
    [
        ({}, None),
        ({"flavour": "classic"}, Flavour.CLASSIC),
        ({"api": "integration"}, Flavour.OS),
        ({"base_url": "https://unifi.lan/proxy/network"}, Flavour.OS),
    ],
)
def test_the_flavour_is_known_where_settings_imply_it(changes: dict[str, Any], flavour: Flavour | None) -> None:
    assert UnifiSettings(**{"base_url": "unifi.lan", "api_key": KEY, **changes}).known_flavour is flavour


def test_a_password_may_be_in_quotes_and_contain_spaces() -> None:
    for password in ('"hunter 2"', "'", '"'):
        assert UnifiSettings(base_url="unifi.lan", user="dns", password=Secret(password)).password.matches(password)


def test_the_error_for_a_key_does_not_show_it() -> None:
    for text in ("'hunter2'", "Bearer hunter2"):
        with pytest.raises(ValueError, match="UNIFI_API_KEY") as refusal:
            UnifiSettings(base_url="unifi.lan", api_key=Secret(text))
        assert "hunter2" not in str(refusal.value)


def test_settings_never_show_their_secrets() -> None:
    settings = UnifiSettings(base_url="unifi.lan", user="dns", password=Secret("hunter2"))

    assert "hunter2" not in repr(settings)
