"""Listen addresses as a person writes them."""

import pytest

from daemonkit.addresses import ListenAddress


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8888", "127.0.0.1", 8888),
        ("0.0.0.0:8080", "0.0.0.0", 8080),
        (":8080", "", 8080),
        ("localhost:0", "localhost", 0),
        ("edge.example.com.:7844", "edge.example.com.", 7844),
        ("[::1]:65535", "::1", 65535),
        (" [0:0:0:0:0:0:0:1]:1 ", "::1", 1),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        ("[::ffff:127.0.0.1]:80", "127.0.0.1", 80),
    ],
)
def test_host_and_port_are_understood(text: str, host: str, port: int) -> None:
    assert ListenAddress.parse(text) == ListenAddress(host, port)


@pytest.mark.parametrize("text", ["127.0.0.1:8888", ":8080", "[::1]:1", "unix:/run/x.sock", "host.example:0"])
def test_the_canonical_text_reads_back_as_itself(text: str) -> None:
    assert str(ListenAddress.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8080", "without a port"),
        ("127.0.0.1", "without a port"),
        ("[::1]", "without a port"),
        ("host:http", "seen port 'http'"),
        ("host:65536", "want 0 to 65535"),
        ("host:" + "9" * 5000, "want 0 to 65535"),
        ("host:\u0668\u0660", "want 0 to 65535"),
        ("http://127.0.0.1:8080", "a URL, want host:port"),
        ("https://host.example:8080/", "a URL, want host:port"),
        ("::1:80", "in brackets"),
        ("[127.0.0.1]:80", "IPv6 address in brackets"),
        ("[FE80:0::1]:80", r"the interface of a link-local address too, as in \[fe80::1%eth0\]"),
        ("*:80", "want :80 for every address"),
        ("1.2.3:80", "want host:port"),
        ("1.2.3.256:80", "want host:port"),
        ("1.2.3.4.:80", "want host:port"),
        ("host..:80", "want host:port"),
        ("ho st:80", "want host:port"),
        ("unix:relative", "absolute path"),
        ("unix:/", "absolute path"),
        ("unix:/run/a\0b", "absolute path"),
        ("unix:/" + "x" * 107, "at most 107"),
    ],
)
def test_an_invalid_address_is_refused_with_the_form_that_is_expected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ListenAddress.parse(text)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/run/x.sock"])
def test_loopback_addresses_and_unix_sockets_are_reachable_from_this_host_only(text: str) -> None:
    assert ListenAddress.parse(text).is_loopback


@pytest.mark.parametrize("text", [":1", "0.0.0.0:1", "[::]:1", "192.168.1.1:1", "example.com:1"])
def test_other_addresses_are_reachable_from_other_hosts(text: str) -> None:
    assert not ListenAddress.parse(text).is_loopback
