"""The Huffman code: the RFC's strings, another implementation's, and every way to be wrong."""

import types
import zlib

import pytest
from hpack import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.h2 import huffman
from proxy.h2.errors import ErrorCode, RemoteProtocolError

ENCODER = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)

# RFC 7541, C.4 and C.6.
RFC_STRINGS = [
    ("f1e3c2e5f23a6ba0ab90f4ff", b"www.example.com"),
    ("a8eb10649cbf", b"no-cache"),
    ("25a849e95ba97d7f", b"custom-key"),
    ("25a849e95bb8e8b4bf", b"custom-value"),
    ("6402", b"302"),
    ("aec3771a4b", b"private"),
    ("d07abe941054d444a8200595040b8166e082a62d1bff", b"Mon, 21 Oct 2013 20:13:21 GMT"),
    ("9d29ad171863c78f0b97c8e9ae82ae43d3", b"https://www.example.com"),
    ("640eff", b"307"),
    ("9bd9ab", b"gzip"),
    (
        "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ),
]


@pytest.mark.parametrize(("encoded", "text"), RFC_STRINGS, ids=[text.decode()[:20] for _, text in RFC_STRINGS])
def test_the_strings_of_the_rfc_are_decoded(encoded: str, text: bytes) -> None:
    assert text == huffman.decode(bytes.fromhex(encoded))


@given(st.binary(max_size=200))
def test_what_another_implementation_encodes_is_decoded(text: bytes) -> None:
    assert text == huffman.decode(ENCODER.encode(text))


TEXTS = st.one_of(st.binary(max_size=40), st.from_regex(rb"[ -~]{0,60}", fullmatch=True))


@given(st.lists(TEXTS, max_size=8))
def test_strings_are_decoded_together_as_each_by_itself(texts: list[bytes]) -> None:
    """Also those that hold NUL, codes that are too long for deflate, or what a separator is decoded to."""
    assert texts == huffman.decode_all([ENCODER.encode(text) for text in texts])


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
@settings(max_examples=500)
def test_strings_of_any_bytes_are_decoded_or_refused_as_another_implementation_does(strings: list[bytes]) -> None:
    try:
        expected = [decode_huffman(string) for string in strings]
    except HPACKDecodingError:
        with pytest.raises(RemoteProtocolError):
            huffman.decode_all(strings)
    else:
        assert expected == huffman.decode_all(strings)
    assert [b"no-cache"] == huffman.decode_all([bytes.fromhex("a8eb10649cbf")])  # no state is left from earlier calls


@pytest.mark.parametrize("padding_bits", range(8))
def test_texts_that_end_like_a_separator_behind_padding_are_left_whole(padding_bits: int) -> None:
    for ending in sorted(huffman.ENDINGS):
        text = b"0" * (3 * padding_bits % 8) + ending
        assert [text, text] == huffman.decode_all([ENCODER.encode(text)] * 2)


class LateZlib:
    """Keeps what it puts out until the next call, as no zlib may."""

    def __init__(self, window_bits: int) -> None:
        self._decompressor = zlib.decompressobj(window_bits)
        self._kept = b""

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    def decompress(self, data: bytes) -> bytes:
        given, self._kept = self._kept, self._decompressor.decompress(data)
        return given


class ShortOfMemory(LateZlib):
    """Breaks off inside a code in its third call: after the block's head and a string."""

    def __init__(self, window_bits: int) -> None:
        super().__init__(window_bits)
        self._calls = 0

    def decompress(self, data: bytes) -> bytes:
        self._calls += 1
        if self._calls == 3:
            self._decompressor.decompress(data[:1])
            raise MemoryError
        return self._decompressor.decompress(data)


def test_delayed_output_is_not_taken_for_another_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huffman, "zlib", types.SimpleNamespace(decompressobj=LateZlib))
    block = huffman._Block()
    for text in (b"first", b"second", b"third"):
        assert block.decode([ENCODER.encode(text)]) in (None, [text])


def test_a_failed_call_leaves_nothing_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huffman, "zlib", types.SimpleNamespace(decompressobj=ShortOfMemory))
    block = huffman._Block()
    assert block.decode([ENCODER.encode(b"first")]) == [b"first"]
    with pytest.raises(MemoryError):
        block.decode([ENCODER.encode(b"second")])

    assert block.decode([ENCODER.encode(b"third")]) == [b"third"]


def codes_that_deflate_has() -> dict[str, int]:
    codes = {f"{REQUEST_CODES[symbol]:0{REQUEST_CODES_LENGTH[symbol]}b}": symbol for symbol in range(256)}
    return {code: symbol for code, symbol in codes.items() if len(code) <= 15}


def test_a_separator_ends_with_nul_from_every_position_in_the_code() -> None:
    codes = codes_that_deflate_has()
    places = {code[:length] for code in codes for length in range(len(code))}
    bits = "".join(f"{byte:08b}" for byte in huffman.SEPARATOR)
    for place in places:
        symbols = []
        for bit in bits:
            place += bit  # noqa: PLW2901
            if place in codes:
                symbols.append(codes[place])
                place = ""  # noqa: PLW2901

        assert ("", 0) == (place, symbols[-1])


def test_every_symbol_is_decoded() -> None:
    for symbol in range(256):
        text = bytes((symbol,)) * 3
        assert text == huffman.decode(ENCODER.encode(text))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("ffffffff", id="end-of-string code"),
        pytest.param("1fff", id="a symbol, then padding of more than seven bits"),
        pytest.param("1e", id="a symbol, then padding that is not all ones"),
        pytest.param("ff", id="padding alone, of eight bits"),
        pytest.param("fe", id="inside a long code"),
    ],
)
def test_wrong_padding_is_a_compression_error_of_the_connection(wrong: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        huffman.decode(bytes.fromhex(wrong))

    assert (ErrorCode.COMPRESSION_ERROR, 0) == (caught.value.code, caught.value.stream_id)
