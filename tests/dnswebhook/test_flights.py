"""Shared calls: nobody gets the result of a flight that began before the call. The tests set every order of events."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreTimeout, StoreUnreachable
from dnswebhook.flights import Flights

WAIT_S = 20.0


class Airport:
    """Each fetch announces itself and waits until the test lets it land; its result is its number."""

    def __init__(self) -> None:
        self.departed = threading.Semaphore(0)
        self.number_of_fetches = 0
        self.errors: dict[int, Exception] = {}
        self.leaders: list[int] = []
        self._may_land = threading.Semaphore(0)

    def fetch(self, _deadline: Deadline) -> int:
        self.number_of_fetches += 1
        number = self.number_of_fetches
        self.leaders.append(threading.get_ident())
        self.departed.release()
        assert self._may_land.acquire(timeout=WAIT_S), "nobody let it land"
        if number in self.errors:
            raise self.errors[number]
        return number

    def wait_for_departure(self) -> None:
        assert self.departed.acquire(timeout=WAIT_S), "no fetch began"

    def land(self) -> None:
        self._may_land.release()


class Queue(Deadline):
    """A deadline that signals when its caller waits for others: the remaining time is read only then."""

    def __init__(self) -> None:
        self.is_waiting = threading.Event()
        super().__init__(0, threading.Event())

    @property
    def remaining_s(self) -> float:
        self.is_waiting.set()
        return WAIT_S


def queued(pool: ThreadPoolExecutor, flights: Flights[int]) -> "Future[int]":
    """Starts a caller that waits behind a flight in progress."""
    deadline = Queue()
    future = pool.submit(flights.get, deadline)
    assert deadline.is_waiting.wait(WAIT_S)
    return future


def test_a_lone_caller_fetches_for_itself_each_time() -> None:
    airport = Airport()
    flights = Flights(airport.fetch)
    airport.land()
    airport.land()

    assert [1, 2] == [flights.get(Deadline.after(WAIT_S)) for _ in range(2)]
    assert [threading.get_ident()] * 2 == airport.leaders


def test_a_caller_that_asks_during_a_flight_gets_the_next_one() -> None:
    airport = Airport()
    flights = Flights(airport.fetch)
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(flights.get, Deadline.after(WAIT_S))
        airport.wait_for_departure()
        late = queued(pool, flights)
        airport.land()
        airport.wait_for_departure()
        airport.land()

        assert (1, 2) == (early.result(WAIT_S), late.result(WAIT_S))


def test_ten_callers_share_two_flights() -> None:
    airport = Airport()
    flights = Flights(airport.fetch)
    with ThreadPoolExecutor(10) as pool:
        early = pool.submit(flights.get, Deadline.after(WAIT_S))
        airport.wait_for_departure()
        late = [queued(pool, flights) for _ in range(9)]
        airport.land()
        airport.wait_for_departure()
        airport.land()

        assert 1 == early.result(WAIT_S)
        assert [2] * 9 == [caller.result(WAIT_S) for caller in late]
    assert 2 == airport.number_of_fetches


def test_an_error_is_raised_for_its_leader_and_for_all_that_shared_the_flight() -> None:
    airport = Airport()
    airport.errors[2] = StoreUnreachable("gone")
    flights = Flights(airport.fetch)
    with ThreadPoolExecutor(4) as pool:
        early = pool.submit(flights.get, Deadline.after(WAIT_S))
        airport.wait_for_departure()
        late = [queued(pool, flights) for _ in range(3)]
        airport.land()
        airport.wait_for_departure()
        airport.land()

        assert 1 == early.result(WAIT_S)
        for caller in late:
            with pytest.raises(StoreUnreachable, match="gone"):
                caller.result(WAIT_S)


def test_an_error_does_not_reach_callers_of_the_next_flight() -> None:
    airport = Airport()
    airport.errors[1] = ZeroDivisionError("a bug")
    flights = Flights(airport.fetch)
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(flights.get, Deadline.after(WAIT_S))
        airport.wait_for_departure()
        late = queued(pool, flights)
        airport.land()
        airport.wait_for_departure()
        airport.land()

        with pytest.raises(ZeroDivisionError):
            early.result(WAIT_S)
        assert 2 == late.result(WAIT_S)


def test_a_caller_whose_deadline_passes_gives_up_and_the_flight_goes_on() -> None:
    airport = Airport()
    flights = Flights(airport.fetch)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(flights.get, Deadline.after(WAIT_S))
        airport.wait_for_departure()

        with pytest.raises(StoreTimeout, match="still running at the deadline"):
            flights.get(Deadline.after(0.01))
        airport.land()

        assert 1 == early.result(WAIT_S)
