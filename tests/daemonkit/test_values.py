"""Values that a person wrote: which are understood, and what the refusals say."""

import pytest

from daemonkit.values import (
    choice,
    comma_list,
    duration,
    integer,
    number,
    parse_bool,
    parse_duration,
    parse_size,
    parse_url,
    size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("500ms", 0.5), ("1m30s", 90), ("2h", 7200), ("1.5s", 1.5), (" 0s ", 0), ("1h0m0s1ms", 3600.001)],
)
def test_durations_are_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["30", "0", "1.5"])
def test_a_bare_number_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match=rf"'{text}' without a unit.*did you mean {text}s\?"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "1s1m", "1s2s", "1 s", "30S", "1m 30s", "٣s", "1e3s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want a duration such as 30s"):
        parse_duration(text)


def test_a_duration_outside_its_range_is_refused_with_the_range() -> None:
    assert duration(1, 60)("1m") == 60

    with pytest.raises(ValueError, match="seen '2m', want 1 to 60s"):
        duration(1, 60)("2m")


@pytest.mark.parametrize("text", ["true", "TRUE", "True", "1", "yes", "Yes", " yes "])
def test_true_1_and_yes_are_true_in_any_case(text: str) -> None:
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "NO"])
def test_false_0_and_no_are_false_in_any_case(text: str) -> None:
    assert parse_bool(text) is False


@pytest.mark.parametrize("text", ["", "on", "off", "y", "2", "truee"])
def test_other_words_are_refused_as_booleans(text: str) -> None:
    with pytest.raises(ValueError, match="want true, false, 1, 0, yes or no"):
        parse_bool(text)


@pytest.mark.parametrize(
    ("text", "octets"), [("5242880", 5242880), ("5MiB", 5242880), ("64KiB", 65536), ("1 gib", 1 << 30), ("0", 0)]
)
def test_sizes_are_read_in_bytes(text: str, octets: int) -> None:
    assert parse_size(text) == octets


@pytest.mark.parametrize("text", ["", "5MB", "-1", "1.5MiB", "MiB", "5 M i B"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want a size such as"):
        parse_size(text)


def test_a_size_below_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="want at least 1024 bytes"):
        size(1024)("1000")


def test_integers_stay_in_their_range() -> None:
    assert integer(1, 64)(" 64 ") == 64
    for text in ("0", "65", "1.0", "x", "", "1_000"):
        with pytest.raises(ValueError, match="want a whole number, 1 to 64"):
            integer(1, 64)(text)


def test_numbers_stay_in_their_range() -> None:
    assert [number(0, 1)(text) for text in ("0", "0.5", "1.0")] == [0.0, 0.5, 1.0]
    for text in ("1.1", "-0.1", "nan", "inf", "1e-3"):
        with pytest.raises(ValueError, match="want a number, 0 to 1"):
            number(0, 1)(text)
    with pytest.raises(ValueError, match=r"want a number, 0\.5 to 1$"):
        number(0.5, 1)("0.4")


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({}, "of any size"),
        ({"minimum": 1}, "at least 1"),
        ({"maximum": 5.0}, "at most 5"),
        ({"minimum": 1.0, "maximum": 5}, "1 to 5"),
    ],
)
def test_a_refused_number_is_told_the_bounds_that_there_are(bounds: dict[str, float], wanted: str) -> None:
    for parse, kind in ((integer(**bounds), "whole number"), (number(**bounds), "number")):
        with pytest.raises(ValueError, match=f"want a {kind}, {wanted}$"):
            parse("x")


def test_a_choice_is_one_of_its_words_in_any_case() -> None:
    assert choice("auto", "v2")("AUTO") == "auto"
    with pytest.raises(ValueError, match="seen 'v3', want one of auto, v2"):
        choice("auto", "v2")("v3")


def test_a_comma_list_skips_empty_parts_and_white_space() -> None:
    assert comma_list()(" a, b,,c ,") == ("a", "b", "c")
    assert comma_list()("") == ()
    assert comma_list(integer())("1,2") == (1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "https://192.168.1.1",
        "http://host:8080/base",
        "https://[::1]:8443",
        "http://host.1",
        "http://0x.lan",
        "http://http:80//a",
    ],
)
def test_urls_are_kept_as_written(text: str) -> None:
    assert parse_url(f" {text}/ ") == text


ELSEWHERE = ("\uff11\uff19\uff12.168.010.1", "192\uff0e168\u3002010\uff611", "\u0661\u0662.1")
"""Digits and dots of other scripts, which IDNA takes for those of ASCII."""
MISTYPED = ("010", "0x7f.1", "192.168.010.1", "192.168.1", "192.168.1.256", "192.168.1.1.", *ELSEWHERE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((f"http://{host}:8082", "neither an IPv4 address nor a name") for host in MISTYPED),
        ("192.168.1.1", r"did you mean https://192.168.1.1 or http://192.168.1.1\?"),
        *((f"https://{host}", "too long for DNS") for host in ("a" * 64, "a..b", ".a", ".", "a." * 128)),
        ("ftp://host", "want a URL such as"),
        ("https://", "want a URL such as"),
        ("https://host:99999", "broken .*, want a URL such as"),
        ("https://[::1", "broken"),
        ("http://::1:8082", r"an IPv6 address is written in brackets, as in \[fd00::1\]\)"),
        ("https://fd00:1:2:3:4:5:6:7/", "in brackets"),
        ("http://host:80:a", "broken"),
        *((f"http://{host}:80", "broken") for host in ("[::1]x", "x[::1]", "[::1].example", "[::1]8")),
        ("https://host:0", "want a URL"),
        ("http://http://host", r"broken \(its scheme is written twice\), want a URL"),
        ("HTTPS://http://host", "written twice"),
        ("http://wss://host", "written twice"),
        ("http://git+ssh://host", "written twice"),
        ("https://h2-c.1://host", "written twice"),
        ("http://80://host", "written twice"),
        ("https://host/?a=b", "query"),
        ("https://ho st", "want a URL"),
        ("http://[FE80:0::1]:8082", r"the interface of a link-local address too, as in \[fe80:0::1%eth0\]"),
    ],
)
def test_an_unusable_url_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_url(text)


def test_credentials_in_a_url_are_refused_without_repeating_them() -> None:
    with pytest.raises(ValueError, match="credentials") as caught:
        parse_url("https://admin:hunter2@host")

    assert "hunter2" not in str(caught.value)
