"""The Huffman code: the RFC's strings, another implementation's, and every way to be wrong."""

import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from proxy.h2 import ErrorCode, RemoteProtocolError, huffman

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
