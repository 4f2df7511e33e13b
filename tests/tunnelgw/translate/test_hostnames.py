"""Hostnames against what they mean: the sets of hosts that they cover."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting import calls_of
from tunnelgw.translate.hostnames import ANY, covers, effective, intersection, rivals

LABELS = ["a", "b"]
HOSTS = [".".join(labels) for count in (1, 2, 3, 4) for labels in product(LABELS, repeat=count)]
hostnames = st.sampled_from([ANY, *HOSTS[:14], *(f"*.{host}" for host in HOSTS[:14])])


def hosts_of(hostname: str) -> set[str]:
    if hostname == ANY:
        return {*HOSTS}
    if hostname.startswith("*."):
        return {host for host in HOSTS if host.endswith(hostname[1:])}
    return {hostname}


@settings(deadline=None)
@given(hostnames, hostnames)
def test_a_hostname_covers_another_if_it_has_all_of_its_hosts(first: str, second: str) -> None:
    assert covers(first, second) == (hosts_of(first) >= hosts_of(second))


@settings(deadline=None)
@given(hostnames, hostnames)
def test_an_intersection_has_the_hosts_of_both(first: str, second: str) -> None:
    common = intersection(first, second)

    assert (set() if common is None else hosts_of(common)) == hosts_of(first) & hosts_of(second)
    assert common == intersection(second, first)


@settings(deadline=None)
@given(hostnames, st.lists(hostnames.filter(bool), max_size=3))
def test_effective_hostnames_have_the_hosts_of_listener_and_route(listener: str, route: list[str]) -> None:
    found = effective(listener, route)
    wanted = set().union(*map(hosts_of, route)) if route else {*HOSTS}

    assert set().union(*map(hosts_of, found)) == hosts_of(listener) & wanted
    assert len(found) == len(set(found))


@settings(deadline=None)
@given(st.lists(st.lists(hostnames, max_size=3), max_size=5))
def test_the_rival_of_a_group_is_the_first_other_one_with_a_host_in_common(groups: list[list[str]]) -> None:
    def meet(group: list[str], other: list[str]) -> bool:
        return any(intersection(mine, its) is not None for mine in group for its in other)

    def first_rival(place: int) -> int | None:
        met = (at for at, other in enumerate(groups) if at != place and meet(groups[place], other))
        return next(met, None)

    assert rivals(groups) == tuple(map(first_rival, range(len(groups))))


def test_finding_rivals_does_not_compare_all_pairs() -> None:
    def calls(count: int) -> int:
        groups = [[f"h{place}.{group}.example" for place in range(count)] for group in range(4)]
        return calls_of(lambda: rivals(groups))

    assert calls(80) < 3 * calls(40)


def test_intersections_are_the_most_specific_names() -> None:
    assert intersection("*.example", "*.a.example") == "*.a.example"
    assert intersection("*.example", "example") is None
    assert effective("a.example", ["*.example", "a.example", "b.example"]) == ("a.example",)
