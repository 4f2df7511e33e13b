"""Decode the Huffman code of header strings (RFC 7541, 5.2 and appendix B), a byte at a time.

A state is a node of the code tree; a table maps (state, input byte) to (output bytes, next state). It has 65,536 slots
and is filled on demand, since real headers visit a few thousand. The code is canonical: the lengths determine it.
We never encode: raw strings cost the receiver less, and our lines are cached.
"""

from hpack.huffman_constants import REQUEST_CODES_LENGTH

from proxy.h2.errors import ErrorCode, RemoteProtocolError

END_OF_STRING = 256
# An index of NODES, or the complement of a decoded symbol; None where no code leads.
Branch = int | None


def _grow_tree() -> list[list[Branch]]:
    nodes: list[list[Branch]] = [[None, None]]
    code = previous_length = 0
    for symbol in sorted(range(257), key=lambda symbol: (REQUEST_CODES_LENGTH[symbol], symbol)):
        length = REQUEST_CODES_LENGTH[symbol]
        code <<= length - previous_length
        node = nodes[0]
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            following = node[bit]
            if following is None:
                following = node[bit] = len(nodes)
                nodes.append([None, None])
            node = nodes[following]
        node[code & 1] = ~symbol
        previous_length = length
        code += 1
    return nodes


NODES = _grow_tree()


def _padding_states() -> frozenset[int]:
    """Where a string may end: after a symbol and at most seven bits of the end-of-string code, which is all ones."""
    states = [0]
    for _ in range(7):
        following = NODES[states[-1]][1]
        assert following is not None  # noqa: S101 - the longest code, all ones, is 30 bits
        states.append(following)
    return frozenset(state << 8 for state in states)


PADDING_STATES = _padding_states()
# Indexed by state << 8 | byte; the next state is kept shifted too.
_steps: list[tuple[bytes, int] | None] = [None] * (len(NODES) << 8)


def _walk(key: int) -> tuple[bytes, int]:
    state, byte = key >> 8, key & 0xFF
    output = bytearray()
    for shift in range(7, -1, -1):
        branch = NODES[state][byte >> shift & 1]
        if branch is None or ~branch == END_OF_STRING:
            raise RemoteProtocolError(ErrorCode.COMPRESSION_ERROR, "Huffman string holds the end-of-string code")
        if branch < 0:
            output.append(~branch)
            state = 0
        else:
            state = branch
    step = _steps[key] = bytes(output), state << 8
    return step


def decode(data: bytes) -> bytes:
    """Raises RemoteProtocolError (COMPRESSION_ERROR, connection) for wrong padding and for the end-of-string code."""
    steps = _steps
    output = []
    state = 0
    for byte in data:
        step = steps[state | byte]
        if step is None:
            step = _walk(state | byte)
        symbols, state = step
        output.append(symbols)
    if state not in PADDING_STATES:
        raise RemoteProtocolError(
            ErrorCode.COMPRESSION_ERROR, "Huffman string ends inside a symbol, want padding of ones"
        )
    return b"".join(output)
