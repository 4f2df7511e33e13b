"""Decode the Huffman code of header strings (RFC 7541, 5.2 and appendix B) with zlib, many strings in one call.

The code is canonical, and so are those that deflate lets a block bring along (RFC 1951, 3.2.2 and 3.2.7): the same
lengths give the same codes, as far as deflate goes, which is 15 bits. That is all that usual headers hold: printable
ASCII but the backslash. Longer codes begin with 15 ones, which stand for the end of the block here. Deflate reads bytes
from their lowest bit, so bits are reversed.

One decompressor has read the head of a block that does not end, and is given strings, each with a separator behind it:
after that, wherever the string has led, it stands between two codes and has put out NUL, which no field holds. What
comes right before the NUL tells whether the string ended as it must, between codes and at most seven ones. Strings that
leave a doubt are decoded by the `hpack` package instead, slowly, which also says what is wrong with them.

We never encode: raw strings cost the receiver less, and our lines are cached.
"""

import zlib
from collections.abc import Sequence
from typing import Final

from hpack import HPACKDecodingError
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman

from proxy.h2.errors import ErrorCode, RemoteProtocolError

SEPARATOR: Final = bytes.fromhex("03ff5ff8")
"""19 bits that lead from every place in the code to one between codes, found by search; and NUL."""
_NUL: Final = b"\0"
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_MAX_CODE_BITS: Final = 15
# Nothing in a block without lengths and distances refers back.
_SMALLEST_WINDOW: Final = -8


def _block_head() -> bytes:
    """Of a block with our code lengths, up to where its first code begins (RFC 1951, 3.2.3 and 3.2.7)."""
    lengths = [bits if bits <= _MAX_CODE_BITS else 0 for bits in REQUEST_CODES_LENGTH[:256]]
    literals_and_end, distances = [*lengths, _MAX_CODE_BITS], [0]
    # The last block, with its own codes: none more than 257 literals and a distance, but all 19 lengths of lengths.
    in_stream_order = ["1", "01", "00000", "00000", "1111"]
    # Lengths are themselves coded: here 0 to 15 by four bits each, and 16 to 18, which repeat others, not at all.
    in_stream_order += [3 * "000", 16 * "001"]
    in_stream_order += [f"{bits:04b}" for bits in literals_and_end + distances]
    # A space, so that strings begin with a byte.
    in_stream_order.append(f"{REQUEST_CODES[0x20]:06b}")
    bits = "".join(in_stream_order)
    return int(bits[::-1], 2).to_bytes(len(bits) // 8, "little")


_BLOCK_HEAD: Final = _block_head()


class _Block:
    """A decompressor inside its block, from call to call. One that leaves a doubt, or breaks off, is not gone on with.

    It is with one call at a time, so calls of several threads do not mix.
    """

    __slots__ = ("_decompressor",)

    def __init__(self) -> None:
        self._decompressor: zlib._Decompress | None = None

    def decode(self, strings: Sequence[bytes]) -> list[bytes] | None:
        """None where some string is not known to be right."""
        decompressor, self._decompressor = self._decompressor or _begun(), None
        separated = SEPARATOR.join(strings) + SEPARATOR
        decoded = decompressor.decompress(separated.translate(_REVERSED)).split(_NUL)
        behind_the_last = decoded.pop()
        if behind_the_last or decompressor.eof or len(decoded) != len(strings):
            return None
        texts = []
        for text in decoded:
            if text[-_ENDING_BYTES:] not in ENDINGS:
                return None
            texts.append(text[:-_ENDING_BYTES])
        self._decompressor = decompressor
        return texts


def _begun() -> "zlib._Decompress":
    decompressor = zlib.decompressobj(_SMALLEST_WINDOW)
    decompressor.decompress(_BLOCK_HEAD)
    return decompressor


def _ending(padding_bits: int) -> bytes:
    """What a separator gives behind a string with so much padding: here of zeros, whose code is five zero bits."""
    zeros = 3 * padding_bits % 8
    string = ((1 << padding_bits) - 1).to_bytes((5 * zeros + padding_bits) // 8, "big")
    return _begun().decompress((string + SEPARATOR).translate(_REVERSED))[zeros : -len(_NUL)]


# A zlib that keeps output back makes none of three bytes here: then no string is known to be right.
ENDINGS: Final = frozenset(_ending(padding_bits) for padding_bits in range(8))
_ENDING_BYTES: Final = 3
_block: Final = _Block()


def decode_all(strings: Sequence[bytes]) -> list[bytes]:
    """Raises RemoteProtocolError (COMPRESSION_ERROR, connection) for wrong padding and for the end-of-string code."""
    decoded = _block.decode(strings)
    return [decode(string) for string in strings] if decoded is None else decoded


def decode(string: bytes) -> bytes:
    """The same for one."""
    decoded = _block.decode((string,))
    return _decode_slowly(string) if decoded is None else decoded[0]


def _decode_slowly(string: bytes) -> bytes:
    try:
        return decode_huffman(string)
    except HPACKDecodingError as error:
        raise RemoteProtocolError(ErrorCode.COMPRESSION_ERROR, f"{error}, want padding of up to 7 ones") from error
