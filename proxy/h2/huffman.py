"""Decode the Huffman code of header strings (RFC 7541, 5.2 and appendix B), a byte at a time.

A state is a node of the code tree; its table maps an input byte to output bytes and the table of the next state. Of the
65,536 steps those are filled in that occur, since real headers take a few thousand. The code is canonical: the lengths
determine it.
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


# What a byte leads to: symbols, and the table for the next byte. Tables are shared by all that lead to their state.
Step = tuple[bytes, "Table"]
Table = list[Step | None]
_tables: list[Table | None] = [None] * len(NODES)


def _table_of(state: int) -> Table:
    table = _tables[state]
    if table is None:
        table = _tables[state] = [None] * 256
    return table


def _padding_states() -> list[int]:
    """Where a string may end: after a symbol and at most seven bits of the end-of-string code, which is all ones."""
    states = [0]
    for _ in range(7):
        following = NODES[states[-1]][1]
        assert following is not None  # noqa: S101 - the longest code, all ones, is 30 bits
        states.append(following)
    return states


_START = _table_of(0)
_ENDS = frozenset(id(_table_of(state)) for state in _padding_states())


def _walk(state: int, byte: int) -> tuple[bytes, int]:
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
    return bytes(output), state


def _learn(data: bytes) -> None:
    """Fill in every step that `data` takes."""
    state = 0
    for byte in data:
        symbols, following = _walk(state, byte)
        _table_of(state)[byte] = symbols, _table_of(following)
        state = following


def decode(data: bytes) -> bytes:
    """Raises RemoteProtocolError (COMPRESSION_ERROR, connection) for wrong padding and for the end-of-string code."""
    output: list[bytes] = []
    append = output.append
    table = _START
    try:
        for byte in data:
            # No question whether the step is there: it nearly always is.
            symbols, table = table[byte]  # type: ignore[misc]
            append(symbols)
    except TypeError:
        _learn(data)
        return decode(data)
    if id(table) not in _ENDS:
        raise RemoteProtocolError(
            ErrorCode.COMPRESSION_ERROR, "Huffman string ends inside a symbol, want padding of ones"
        )
    return b"".join(output)
