"""The garbage collector, after code under test has frozen what it should ignore."""

import gc


def thaw() -> None:
    """Undo `gc.freeze` of the code under test, but not that of the whole run: see `pytest_collection`.

    Otherwise each collection of all later tests would traverse ten thousand tests again.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
