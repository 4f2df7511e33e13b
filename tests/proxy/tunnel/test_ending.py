from proxy.tunnel.ending import Ending
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import Ended
from proxy.tunnel.packetsize import BlackHole


def test_only_the_first_reason_is_reported() -> None:
    ending = Ending()
    assert not ending.has_reason

    ending.note(FailureCause.SILENT, "no answer")
    ending.note(FailureCause.LOST, "closed")

    assert ending.has_reason
    assert ending.report(3, 10.0, BlackHole.PERHAPS) == Ended(
        3, FailureCause.SILENT, "no answer", 0.0, 0.0, BlackHole.PERHAPS
    )
    assert ending.is_told


def test_a_connection_that_ends_without_a_reason_is_reported_as_unregistered() -> None:
    ending = Ending()
    ending.note_registered(4.0)
    assert not ending.is_told

    assert ending.report(0, 10.5, BlackHole.NO) == Ended(0, FailureCause.LOST, "unregistered", 0.0, 6.5)


def test_a_registration_that_ends_at_once_still_lasted_more_than_zero() -> None:
    ending = Ending()
    ending.note_registered(4.0)

    assert ending.report(0, 4.0, BlackHole.NO).registered_for_s > 0.0


def test_the_wait_that_the_edge_asks_for_is_reported() -> None:
    ending = Ending()
    ending.retry_after_s = 300.0

    assert ending.report(0, 4.0, BlackHole.NO).retry_after_s == 300.0
