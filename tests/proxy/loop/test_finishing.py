"""How long a finished connection waits for a peer, by what is seen at each look."""

import pytest

from proxy.loop.finishing import LOOK_S, PATIENCE_S, Finishing


def looks(counts: list[int], *, is_queued: bool) -> list[bool]:
    """What each look says, LOOK_S apart, up to the first that ends the wait."""
    finishing, said = Finishing(0.0), []
    for number, unacknowledged_bytes in enumerate(counts, 1):
        said.append(finishing.goes_on(number * LOOK_S, unacknowledged_bytes, is_queued=is_queued))
        if not said[-1]:
            break
    return said


def test_a_peer_that_takes_nothing_of_the_queued_output_is_given_up_when_patience_ends() -> None:
    said = looks([1000] * 100, is_queued=True)

    assert len(said) == PATIENCE_S / LOOK_S


def test_a_peer_that_takes_queued_output_however_slowly_is_not_given_up() -> None:
    assert all(looks([byte + 1 for byte in reversed(range(100))], is_queued=True))


def test_patience_begins_again_whenever_a_peer_takes_something() -> None:
    said = looks([1000] * 5 + [999] * 100, is_queued=True)

    assert len(said) == 6 + PATIENCE_S / LOOK_S


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([0], [False]),
        ([1], [False]),
        ([2, 2], [True, False]),
        ([900, 500, 100, 100], [True, True, True, False]),
        ([900, 1000], [True, False]),
    ],
    ids=["nothing", "only the FIN", "not taken", "taken for a while", "grown"],
)
def test_output_in_the_kernel_is_waited_for_as_long_as_the_peer_takes_some_at_every_look(
    counts: list[int], said: list[bool]
) -> None:
    assert looks(counts, is_queued=False) == said


def test_output_that_has_left_the_queue_is_judged_by_the_same_counts() -> None:
    finishing = Finishing(0.0)
    assert finishing.goes_on(2.0, 1000, is_queued=True)

    assert finishing.goes_on(4.0, 500, is_queued=False)
    assert not finishing.goes_on(6.0, 500, is_queued=False)
