"""Parts in blocks say the same as parts in a sorted dictionary."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelgw.translate import encodedparts
from tunnelgw.translate.encodedparts import EncodedParts

names = st.text("abc", min_size=1, max_size=3)
edits = st.lists(st.tuples(names, st.none() | st.integers(0, 9)), max_size=60)


def joined(parts: EncodedParts) -> bytes:
    return b"".join(parts.chunks())


@settings(deadline=None)
@given(edits, st.sampled_from([1, 2, 3, 256]))
def test_any_edits_leave_the_parts_in_the_order_of_their_names(edits: list[tuple[str, int | None]], size: int) -> None:
    parts = EncodedParts()
    model: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodedparts, "MAX_BLOCK", size)
        for name, number in edits:
            if number is None:
                parts.remove(name)
                model.pop(name, None)
            else:
                parts.put(name, b"%d" % number)
                model[name] = b"%d" % number

            assert joined(parts) == b",".join(model[name] for name in sorted(model))
            assert len(parts) == len(model)


def test_many_parts() -> None:
    parts = EncodedParts()
    numbers = [(number * 7919) % 5003 for number in range(5003)]
    for number in numbers:
        parts.put(f"{number:05}", b"%d" % number)

    assert joined(parts) == b",".join(b"%d" % number for number in range(5003))
    for number in numbers:
        parts.remove(f"{number:05}")
    assert joined(parts) == b""
