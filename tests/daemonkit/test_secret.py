"""A secret shows its text only where it is asked for it by name."""

import copy
import dataclasses
import html
import json
import pickle
from collections.abc import Callable

import pytest

from daemonkit.secret import Secret, text_without, without

TEXT = "hunter2-hunter2"


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r:>30}".format, "%s".__mod__, lambda s: f"{s}"])
def test_every_way_to_print_a_secret_gives_the_redacted_text(show: Callable[[Secret], str]) -> None:
    assert "<redacted>" in show(Secret(TEXT))
    assert TEXT not in show(Secret(TEXT))


def test_a_secret_inside_a_dataclass_stays_redacted_in_its_repr() -> None:
    @dataclasses.dataclass(frozen=True)
    class Holder:
        key: Secret

    assert TEXT not in repr(Holder(Secret(TEXT)))


def test_reveal_gives_the_text() -> None:
    assert Secret(TEXT).reveal() == TEXT


@pytest.mark.parametrize("other", [TEXT, TEXT.encode(), Secret(TEXT)])
def test_a_secret_matches_the_same_text_as_str_bytes_and_secret(other: str | bytes | Secret) -> None:
    assert Secret(TEXT).matches(other)


@pytest.mark.parametrize("other", ["", "hunter", TEXT + "x", "ümlaut", "\udcff", b"\xff"])
def test_a_secret_does_not_match_another_text(other: str | bytes) -> None:
    assert not Secret(TEXT).matches(other)


def test_secrets_are_equal_by_text_and_never_equal_to_a_plain_text() -> None:
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret("other")
    assert Secret(TEXT) != TEXT
    assert len({Secret(TEXT), Secret(TEXT)}) == 1


def test_only_the_empty_secret_is_falsy() -> None:
    assert not Secret("")
    assert Secret(" ")


@pytest.mark.parametrize("text", ["two\nlines", "a\tb", "a\x7f", "caf\u00e9"])
def test_a_secret_knows_whether_its_text_fits_into_a_header_field(text: str) -> None:
    assert not Secret(text).fits_header()
    assert Secret(TEXT).fits_header()


def test_a_secret_can_be_neither_pickled_nor_encoded_as_json() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Secret(TEXT))
    with pytest.raises(TypeError):
        json.dumps(Secret(TEXT))


def test_copies_of_a_secret_are_the_same_object() -> None:
    secret = Secret(TEXT)

    assert copy.deepcopy([secret])[0] is secret
    assert copy.copy(secret) is secret


def test_a_secret_cannot_be_changed() -> None:
    secret = Secret(TEXT)

    with pytest.raises(AttributeError):
        secret.text = "other"
    with pytest.raises(AttributeError):
        secret._Secret__text = "other"
    assert secret.reveal() == TEXT


@pytest.mark.parametrize("text", [TEXT, 'a"b\\c<d&e', "ümlaut", "slash/ed-text"])
@pytest.mark.parametrize(
    "repeat",
    [
        str,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: json.dumps({"seen": json.dumps({"password": text}, ensure_ascii=False)}),
        html.escape,
        lambda text: json.dumps(text).replace("/", r"\/"),
        lambda text: json.dumps(text, ensure_ascii=False).replace("<", r"\u003c").replace("&", r"\u0026"),
    ],
)
def test_a_secret_is_taken_out_of_an_answer_that_repeats_it(text: str, repeat: Callable[[str], str]) -> None:
    answer = f"<p>{repeat(text)}</p>"

    left = without(answer.encode(), ("", text)).decode()

    spellings = (text, html.escape(text), json.dumps(text)[1:-1], json.dumps(json.dumps(text))[3:-3])
    assert "<redacted>" in left
    assert not any(spelling in left for spelling in spellings)


@pytest.mark.parametrize(
    "spelling",
    [
        r"a\u0026b\u003cc='\"d",
        r"a\u0026b\u003cc\u003d\u0027\"d",
        r"a&b<c='\"d",
        "a&amp;b&lt;c='&quot;d",
        "a&amp;b&lt;c=&#39;&#34;d",
        "a&amp;b&lt;c=&#39;&quot;d",
        "a&amp;b&lt;c=&#039;&quot;d",
        "a&amp;b&lt;c='\"d",
    ],
)
def test_a_secret_is_taken_out_as_servers_in_other_languages_spell_it(spelling: str) -> None:
    """Go and Gson escape JSON for HTML, too; HTML has several spellings for each quotation mark."""
    assert without(f"no: {spelling}!".encode(), ("a&b<c='\"d",)) == b"no: <redacted>!"


def test_an_answer_without_the_secret_stays_as_it_is() -> None:
    assert without(b"502 \xff Bad Gateway", (TEXT, "")) == b"502 \xff Bad Gateway"


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (b'{"password":"pin7","at":"pin77, spin7"}', b'{"password":"<redacted>","at":"pin77, spin7"}'),
        (b"pin7", b"<redacted>"),
        (b"Bearer pin7, pin7.", b"Bearer <redacted>, <redacted>."),
    ],
)
def test_a_short_secret_is_not_taken_out_of_words_that_contain_it(answer: bytes, left: bytes) -> None:
    assert without(answer, ("pin7",)) == left


def test_nothing_is_left_of_a_secret_that_contains_another() -> None:
    assert without(b"session=opensesame-shut;", ("opensesame", "session=opensesame-shut")) == b"<redacted>;"


def test_a_secret_is_taken_out_of_a_text_with_octets_that_are_no_text() -> None:
    assert text_without(f"-ERR \udcff Bearer {TEXT}", (TEXT,)) == "-ERR ? Bearer <redacted>"


def test_a_long_secret_is_taken_out_of_words_that_contain_it_too() -> None:
    assert without(f"key_{TEXT}2".encode(), (TEXT,)) == b"key_<redacted>2"


def test_a_secret_of_eight_characters_is_long() -> None:
    assert without(b"key_opensesa2", ("opensesa",)) == b"key_<redacted>2"


def test_a_secret_is_taken_out_of_json_that_escapes_only_what_it_must() -> None:
    assert without('{"key":"gr\u00fcn \\"x\\""}'.encode(), ('gr\u00fcn "x"',)) == b'{"key":"<redacted>"}'
