import pytest

from dnswebhook.stores.unifi.address import Flavour, login_path, parse_address, v2_path


@pytest.mark.parametrize(
    ("typed", "base_url"),
    [
        ("192.168.1.1", "https://192.168.1.1"),
        (" unifi.lan ", "https://unifi.lan"),
        ("https://unifi.1", "https://unifi.1"),
        ("https://0x.lan", "https://0x.lan"),
        ("unifi.lan:8443", "https://unifi.lan:8443"),
        ("unifi_network-1", "https://unifi_network-1"),
        ("https://büro.example", "https://büro.example"),
        ("https://unifi.lan/", "https://unifi.lan"),
        ("https://unifi_1.münchen.lan", "https://unifi_1.münchen.lan"),
        ("https://हिन्दी.lan", "https://हिन्दी.lan"),
        ("https://unifi.lan.:8443", "https://unifi.lan:8443"),
        ("HTTPS://unifi.lan:443", "https://unifi.lan"),
        ("http://unifi.lan:8080/", "http://unifi.lan:8080"),
        ("[fd00::1]:8443", "https://[fd00::1]:8443"),
        ("[fe80::1%eth0]:8443", "https://[fe80::1%eth0]:8443"),
        ("https://proxy.lan/unifi/", "https://proxy.lan/unifi"),
        ("https://unifi.lan/proxy/network", "https://unifi.lan"),
        ("https://unifi.lan/proxy/network/integration/v1/", "https://unifi.lan"),
        (
            "https://api.ui.com/v1/connector/consoles/70A7:1/proxy/network/integration/v1",
            "https://api.ui.com/v1/connector/consoles/70A7:1",
        ),
    ],
)
def test_an_address_is_understood_as_people_type_it(typed: str, base_url: str) -> None:
    assert base_url == parse_address(typed).base_url


def test_the_zone_of_an_address_is_not_part_of_the_name_in_a_certificate() -> None:
    assert parse_address("https://[fe80::1%eth0]").tls_name == "fe80::1"
    assert parse_address("https://unifi.lan").tls_name == "unifi.lan"


def test_a_path_of_the_application_tells_the_flavour() -> None:
    assert parse_address("https://unifi.lan/proxy/network/").names_application
    assert not parse_address("https://unifi.lan/other").names_application


MISTYPED = (
    "010",
    "https://0x7f.1",
    "192.168.010.1",
    "https://192.168.1:8443",
    "192.168.1.256",
    "192.168..1",
    "https://\uff11\uff19\uff12.168.010.1",
)


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "is empty"),
        ("ftp://unifi.lan", "scheme 'ftp'"),
        ("https://", "has no host"),
        ("https://unifi.lan:port", "is not a URL"),
        ("https://unifi.lan:99999", "is not a URL"),
        ("unifi.lan:0", "port 0, which no server has"),
        ("https://[fd00::1]:00", "port 0, which no server has"),
        ("https://unifi lan", "has no host"),
        ("https://unifi.lan\u200b", r"'https://unifi.lan\\u200b' has no host"),
        ("https://unifi\x07.lan", "has no host"),
        ("https://unifi.lan/?a=b", "query or fragment"),
        ('"https://192.168.1.1"', "in quotes, which are part of it"),
        ("'unifi.lan'", "in quotes, which are part of it"),
        ("https:/192.168.1.1", "lacks `://`"),
        ("https//192.168.1.1", "lacks `://`"),
        ("192.168.1.1;", "has host '192.168.1.1;', want one name or address"),
        ("192.168.1.1,192.168.1.2", "want one name or address"),
        ("https://<unifi>", "want one name or address"),
        *((f"https://{host}", "too long for DNS") for host in ("a" * 64, "a..b", ".a", "a." * 199)),
        *((f"https://{host}", "is not a URL") for host in ("[fd00::1", "[fd00::1]x", "x[fd00::1]", "[fd00::1]8443")),
        ("fd00::1", r"in brackets, as in \[fd00::1\]$"),
        ("https://fd00::1/", "in brackets"),
        *((typed, "neither an IPv4 address nor a name, want four numbers such as 192.168.1.1") for typed in MISTYPED),
        ("https://fd00:1:2:3:4:5:6:7", "in brackets"),
        ("https://[fe80::1]", r"link-local, want its interface too, as in \[fe80::1%eth0\]"),
    ],
)
def test_an_impossible_address_is_refused_with_the_reason(typed: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(typed)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="contains a user name") as refusal:
        parse_address("https://admin:hunter2@unifi.lan")

    assert "hunter2" not in str(refusal.value)


def test_paths_depend_on_the_flavour_and_quote_the_site() -> None:
    assert v2_path(Flavour.OS, "default") == "/proxy/network/v2/api/site/default/static-dns"
    assert v2_path(Flavour.CLASSIC, "a/b") == "/v2/api/site/a%2Fb/static-dns"
    assert login_path(Flavour.OS) == "/api/auth/login"
    assert login_path(Flavour.CLASSIC) == "/api/login"
