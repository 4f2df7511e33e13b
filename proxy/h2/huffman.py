"""Decode the Huffman code of header strings (RFC 7541, 5.2 and appendix B) with zlib, many strings in one call.

The code is canonical, and so are the codes that a deflate block may define (RFC 1951, 3.2.2 and 3.2.7): equal lengths
give equal codes, up to deflate's limit of 15 bits. That covers what usual headers hold: printable ASCII but the
backslash. Longer codes begin with 15 ones, which here mean the end of the block. Deflate reads bytes from their lowest
bit, so bits are reversed.

One decompressor has read the head of a block that does not end. It is given strings, each followed by a separator.
Wherever in a code a string ends, the separator leads to a point between two codes and puts out NUL, which no field
holds. The output right before the NUL tells whether the string ended as it must: between codes, with at most seven ones
of padding.
Strings that leave a doubt are decoded by the `hpack` package instead, slowly, which also says what is wrong with them.

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
"""19 bits, found by search, that lead from any point within a code to one between codes; then NUL."""
_NUL: Final = b"\0"
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_MAX_CODE_BITS: Final = 15
# A block without lengths and distances never refers back.
_SMALLEST_WINDOW: Final = -8


def _block_head() -> bytes:
    """The head of a block with our code lengths, and a first code (RFC 1951, 3.2.3 and 3.2.7)."""
    lengths = [bits if bits <= _MAX_CODE_BITS else 0 for bits in REQUEST_CODES_LENGTH[:256]]
    literals_and_end, distances = [*lengths, _MAX_CODE_BITS], [0]
    # The last block, with dynamic codes: the minimum of 257 literals and one distance, and all 19 code length codes.
    in_stream_order = ["1", "01", "00000", "00000", "1111"]
    # Code lengths are themselves coded: here 0 to 15 with four bits each; 16 to 18, which repeat others, are not used.
    in_stream_order += [3 * "000", 16 * "001"]
    in_stream_order += [f"{bits:04b}" for bits in literals_and_end + distances]
    # A space, so that strings begin at a byte boundary.
    in_stream_order.append(f"{REQUEST_CODES[0x20]:06b}")
    bits = "".join(in_stream_order)
    return int(bits[::-1], 2).to_bytes(len(bits) // 8, "little")


_BLOCK_HEAD: Final = _block_head()


class _Block:
    """A decompressor inside its block, kept from call to call. It is dropped if it leaves a doubt or raises.

    Each call takes it away while it runs, so calls of several threads do not mix.
    """

    __slots__ = ("_decompressor",)

    def __init__(self) -> None:
        self._decompressor: zlib._Decompress | None = None

    def decode(self, strings: Sequence[bytes]) -> list[bytes] | None:
        """None if some string is not known to be valid."""
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
    """The output of a separator after a string of the digit 0, whose code is five zero bits, with this much padding."""
    zeros = 3 * padding_bits % 8
    string = ((1 << padding_bits) - 1).to_bytes((5 * zeros + padding_bits) // 8, "big")
    return _begun().decompress((string + SEPARATOR).translate(_REVERSED))[zeros : -len(_NUL)]


# A zlib that holds output back makes none of three bytes here: then no string is known to be valid.
ENDINGS: Final = frozenset(_ending(padding_bits) for padding_bits in range(8))
_ENDING_BYTES: Final = 3
_block: Final = _Block()


def decode_all(strings: Sequence[bytes]) -> list[bytes]:
    """Raises RemoteProtocolError (COMPRESSION_ERROR, connection) for wrong padding and for the end-of-string code."""
    decoded = _block.decode(strings)
    return [decode(string) for string in strings] if decoded is None else decoded


def decode(string: bytes) -> bytes:
    """`decode_all` for one string."""
    decoded = _block.decode((string,))
    return _decode_slowly(string) if decoded is None else decoded[0]


def _decode_slowly(string: bytes) -> bytes:
    try:
        return decode_huffman(string)
    except HPACKDecodingError as error:
        raise RemoteProtocolError(ErrorCode.COMPRESSION_ERROR, f"{error}, want padding of up to 7 ones") from error
