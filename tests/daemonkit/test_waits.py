from itertools import islice

from daemonkit.waits import doubling


def test_waits_double_from_the_first_up_to_the_longest() -> None:
    assert list(islice(doubling(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]
