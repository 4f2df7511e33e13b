"""How the provider's connector decodes tokens, row by row, and where ours is stricter."""

import base64
import json
import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tunnel.token import MalformedToken, TunnelToken

TUNNEL_ID = uuid.UUID("99999999-8888-7777-6666-555555555555")
SECRET = b"\xfb\xef\xbe 32 bytes that nobody shall see"
PARTS: dict[str, object] = {"a": "acct", "t": str(TUNNEL_ID), "s": base64.b64encode(SECRET).decode()}
URL_SAFE = str.maketrans("+/", "-_")
WANTED = TunnelToken.of("acct", TUNNEL_ID, SECRET)


def token_of(content: object) -> str:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.b64encode(raw).decode()


TOKEN = token_of(PARTS)


def test_a_token_is_decoded() -> None:
    token = TunnelToken.decode(TOKEN)

    assert ("acct", TUNNEL_ID, SECRET, "") == (
        token.account_tag,
        token.tunnel_id,
        token.secret_bytes,
        token.endpoint,
    )


def test_the_endpoint_chooses_a_region() -> None:
    assert "fed" == TunnelToken.decode(token_of({**PARTS, "e": "fed"})).endpoint


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_line_breaks_inside_are_ignored(line_break: str) -> None:
    assert WANTED == TunnelToken.decode(line_break.join((TOKEN[:7], TOKEN[7:-1], TOKEN[-1], "")))


ACCEPTED = {
    "white space around the object": b" \n\t" + json.dumps(PARTS).encode() + b"\r\n ",
    "unknown keys": {"x": [1, {"a": 2}], **PARTS, "r": None},
    "keys in capitals": {key.upper(): value for key, value in PARTS.items()},
    "the last of two spellings": {"A": "another", **PARTS},
    "a null after the value": json.dumps(PARTS)[:-1].encode() + b',"A":null}',
    "a UUID without dashes": {**PARTS, "t": TUNNEL_ID.hex},
    "a UUID in capitals": {**PARTS, "t": str(TUNNEL_ID).upper()},
    "a UUID in braces": {**PARTS, "t": f"{{{TUNNEL_ID}}}"},
    "a UUID as URN": {**PARTS, "t": f"urn:uuid:{TUNNEL_ID}"},
    "a line break in the secret": {**PARTS, "s": f"{PARTS['s']}\n"},
    "no endpoint": {"e": None, **PARTS},
    "an empty endpoint": {**PARTS, "e": ""},
}


@pytest.mark.parametrize("content", ACCEPTED.values(), ids=ACCEPTED)
def test_oddities_of_the_reference_are_accepted(content: object) -> None:
    assert WANTED == TunnelToken.decode(token_of(content))


REJECTED_TEXTS = {
    "nothing": ("", "the tunnel token is empty"),
    "line breaks alone": ("\r\n", "the tunnel token is empty"),
    "space inside": (TOKEN[:8] + " " + TOKEN[8:], "seen white space inside"),
    "the whole command": (f"cloudflared service install {TOKEN}", "shows, whose last word is the token"),
    "space behind": (TOKEN + " ", "seen white space around it"),
    "tab before": ("\t" + TOKEN, "seen white space around it"),
    "no padding": (token_of(b'{"x":1}').rstrip("="), "a length that is not a multiple of 4"),
    "cut": (TOKEN[:-6], "a length that is not a multiple of 4"),
    "too much padding": (TOKEN + "====", "not base64"),
    "padding in the middle": ("YQ==" + TOKEN, "not base64"),
    "URL-safe": (token_of(b'{"a":"\xc3\xbf\xc3\xbf?>"}').translate(URL_SAFE), "seen the URL-safe alphabet"),
    "its name before it": (f"TUNNEL_TOKEN={TOKEN}", "seen `=` in the middle"),
    "twice": (token_of(b'{"x":1}') * 2, "seen `=` in the middle"),
    "quotes": (f'"{TOKEN}"', "seen quotes around it"),
    "a single quote": (f"'{TOKEN}", "seen quotes around it"),
    "an ellipsis": (f"{TOKEN[:8]}...", "seen characters that base64 does not use"),
    "another encoding": ("ｅｙＪ" + TOKEN, "seen characters that base64 does not use"),
}


@pytest.mark.parametrize(("text", "reason"), REJECTED_TEXTS.values(), ids=REJECTED_TEXTS)
def test_invalid_base64_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(MalformedToken, match=reason):
        TunnelToken.decode(text)


def without(key: str) -> dict[str, object]:
    return {other: value for other, value in PARTS.items() if other != key}


REJECTED: dict[str, tuple[object, str]] = {
    "bytes after the object": (json.dumps(PARTS).encode() + b"{}", "not of a JSON document"),
    "no JSON": (b"\x00\xff", "not of a JSON document"),
    "not UTF-8": (b'{"a":"\xff\xfe"}', "not of a JSON document"),
    "JSON nested too deep": (b"[" * 100_000, "not of a JSON document"),
    "null": (None, "has no account tag"),
    "an empty object": ({}, "has no account tag"),
    "an array": ([], "JSON, but not an object"),
    "a number": (7, "JSON, but not an object"),
    "a string": ("x", "JSON, but not an object"),
    "account tag of another type": ({**PARTS, "a": 7}, "the account tag in the tunnel token is not text"),
    "no account tag": (without("a"), "has no account tag"),
    "an empty account tag": ({**PARTS, "a": ""}, "has no account tag"),
    "tunnel id of another type": ({**PARTS, "t": [1]}, "the tunnel id in the tunnel token is not text"),
    "no tunnel id": (without("t"), "has no tunnel id"),
    "null as tunnel id": ({**PARTS, "t": None}, "has no tunnel id"),
    "an empty tunnel id": ({**PARTS, "t": ""}, "has no tunnel id"),
    "the nil UUID": ({**PARTS, "t": str(uuid.UUID(int=0))}, "has no tunnel id"),
    "another text as tunnel id": ({**PARTS, "t": "my-tunnel"}, "the tunnel id in the tunnel token is not a UUID"),
    "dashes in other places": ({**PARTS, "t": "9999-99998888777766665555-55555555"}, "is not a UUID"),
    "one brace": ({**PARTS, "t": f"{{{TUNNEL_ID}"}, "is not a UUID"),
    "secret without padding": ({**PARTS, "s": "AQIDBA"}, "the tunnel secret in the tunnel token is not base64"),
    "URL-safe secret": ({**PARTS, "s": "--__"}, "the tunnel secret in the tunnel token is not base64"),
    "null as secret": ({**PARTS, "s": None}, "has no tunnel secret"),
    "no secret": (without("s"), "has no tunnel secret"),
    "an empty secret": ({**PARTS, "s": ""}, "has no tunnel secret"),
    "secret of another type": ({**PARTS, "s": {}}, "the tunnel secret in the tunnel token is not text"),
    "endpoint of another type": ({**PARTS, "e": False}, "the endpoint in the tunnel token is not text"),
    "an endpoint that is no name": ({**PARTS, "e": "fed.example.com/"}, "is not the name of a region"),
}


@pytest.mark.parametrize(("content", "reason"), REJECTED.values(), ids=REJECTED)
def test_the_invalid_part_of_a_token_is_named(content: object, reason: str) -> None:
    with pytest.raises(MalformedToken, match=reason):
        TunnelToken.decode(token_of(content))


@given(
    st.dictionaries(
        st.sampled_from("atse"),
        st.text(string.ascii_letters + string.digits, min_size=30) | st.lists(st.text(min_size=30)),
    )
)
def test_no_error_shows_anything_of_the_token(parts: dict[str, object]) -> None:
    text = token_of(parts)
    with pytest.raises(MalformedToken) as caught:
        TunnelToken.decode(text)

    shown = f"{caught.value} {caught.value.__cause__} {caught.value.args}"
    assert text not in shown
    assert not any(value[:12] in shown for value in parts.values() if isinstance(value, str))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: base64.b64encode(raw).decode()))
def test_any_text_decodes_or_raises_malformed_token(text: str) -> None:
    with pytest.raises(MalformedToken, match="tunnel token"):
        TunnelToken.decode(text)


def test_a_token_is_shown_without_its_secret() -> None:
    assert "<redacted>" in repr(WANTED)
    assert str(PARTS["s"]) not in repr(WANTED)
