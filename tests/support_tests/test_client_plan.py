"""The model of external-dns's planning and ownership behaves as documented for the real one."""

import pytest

from dnswebhook.model import Changes, Endpoint
from tests.support.client_json import Generation, Undecodable, decode_endpoints, encode_changes, encode_endpoints
from tests.support.client_plan import Filter, Planner, Policy
from tests.support.client_registry import FORCE_UPDATE, TxtRegistry

OURS = {"owner": "me", "resource": "crd/default/app"}
THEIRS = {"owner": "other"}
WANTED = {"resource": "crd/default/app"}


def a(name: str, *targets: str, ttl_s: int = 0, labels: dict[str, str] | None = None, identifier: str = "") -> Endpoint:
    return Endpoint(name, "A", targets, ttl_s, identifier, labels or {})


def cname(name: str, target: str, labels: dict[str, str] | None = None) -> Endpoint:
    return Endpoint(name, "CNAME", (target,), labels=labels or {})


OWNED = Planner("me")


class TestPlan:
    def test_a_new_name_is_created_and_a_vanished_one_deleted(self) -> None:
        old, new = a("old.example.com", "192.0.2.1", labels=OURS), a("new.example.com", "192.0.2.2", labels=WANTED)

        assert OWNED.plan([old], [new]) == Changes(create=(new,), delete=(old,))

    @pytest.mark.parametrize(
        ("current", "desired"),
        [
            (a("x.example.com", "192.0.2.1", "192.0.2.2"), a("X.example.com", "192.0.2.2", "192.0.2.1")),
            (a("x.example.com", "192.0.2.1", ttl_s=60), a("x.example.com", "192.0.2.1")),
            (cname("x.example.com", "host.example.com"), cname("x.example.com", "HOST.example.com")),
            (
                Endpoint("x.example.com", "AAAA", ("2001:db8::1",)),
                Endpoint("x.example.com", "AAAA", ("2001:0DB8:0:0::1",)),
            ),
            (a("xn--bcher-kva.example.com", "192.0.2.1"), a("bücher.example.com", "192.0.2.1")),
            (a("x.example.com", "192.0.2.1", labels={"owner": "me"}), a("x.example.com", "192.0.2.1", labels=WANTED)),
        ],
        ids=["order", "no TTL wanted", "letter case", "IPv6 spelling", "IDN", "labels"],
    )
    def test_an_insignificant_difference_changes_nothing(self, current: Endpoint, desired: Endpoint) -> None:
        assert Planner(managed_types=frozenset({"A", "AAAA", "CNAME"})).plan([current], [desired]).is_empty

    @pytest.mark.parametrize(
        "desired",
        [
            a("x.example.com", "192.0.2.9"),
            a("x.example.com", "192.0.2.1", ttl_s=60),
            Endpoint("x.example.com", "A", ("192.0.2.1",), provider_specific=(("webhook/x", "1"),)),
        ],
        ids=["targets", "TTL", "properties"],
    )
    def test_a_difference_updates_and_keeps_the_owner(self, desired: Endpoint) -> None:
        current = a("x.example.com", "192.0.2.1", ttl_s=300, labels=OURS)

        changes = OWNED.plan([current], [desired])

        assert changes.update_old == (current,)
        assert [each.labels["owner"] for each in changes.update_new] == ["me"]
        assert changes.update_new[0].targets == desired.targets

    def test_records_that_are_not_owned_are_left_alone(self) -> None:
        held = [a("x.example.com", "192.0.2.1", labels=THEIRS), a("y.example.com", "192.0.2.1")]
        wanted = [a("x.example.com", "192.0.2.9"), cname("y.example.com", "z.example.com")]

        assert OWNED.plan(held, wanted).is_empty
        assert OWNED.plan(held, []).is_empty

    def test_without_ownership_everything_in_view_is_managed(self) -> None:
        held = a("x.example.com", "192.0.2.1")

        assert Planner().plan([held], []) == Changes(delete=(held,))

    def test_a_type_change_deletes_and_creates_in_the_same_call(self) -> None:
        held, wanted = a("x.example.com", "192.0.2.1", labels=OURS), cname("x.example.com", "y.example.com")

        assert OWNED.plan([held], [wanted]) == Changes(create=(wanted,), delete=(held,))

    def test_a_cname_beside_another_type_is_dropped(self) -> None:
        wanted = a("x.example.com", "192.0.2.1")

        assert Planner().plan([], [wanted, cname("x.example.com", "y.example.com")]) == Changes(create=(wanted,))

    def test_of_two_listed_sets_of_one_type_the_later_hides_the_earlier(self) -> None:
        held = [a("x.example.com", "192.0.2.1"), a("x.example.com", "192.0.2.2")]

        assert Planner().plan(held, []) == Changes(delete=(held[1],))

    def test_endpoints_with_a_set_identifier_are_distinct(self) -> None:
        held = a("x.example.com", "192.0.2.1")
        wanted = a("x.example.com", "192.0.2.1", identifier="blue")

        assert Planner().plan([held], [wanted]) == Changes(create=(wanted,), delete=(held,))

    @pytest.mark.parametrize(
        ("policy", "counts"),
        [(Policy.SYNC, (1, 1, 1)), (Policy.UPSERT_ONLY, (1, 1, 0)), (Policy.CREATE_ONLY, (1, 0, 0))],
    )
    def test_the_policy_strips_what_it_forbids(self, policy: Policy, counts: tuple[int, int, int]) -> None:
        held = [a("u.example.com", "192.0.2.1"), a("d.example.com", "192.0.2.1")]
        wanted = [a("u.example.com", "192.0.2.2"), a("c.example.com", "192.0.2.1")]

        changes = Planner(policy=policy).plan(held, wanted)

        assert counts == (len(changes.create), len(changes.update_new), len(changes.delete))

    def test_unmanaged_types_and_names_outside_the_filter_are_ignored(self) -> None:
        planner = Planner(domain_filter=Filter(include=("example.com",)))
        held = [Endpoint("x.example.com", "TXT", ("t",)), a("x.example.org", "192.0.2.1")]

        assert planner.plan(held, []).is_empty

    @pytest.mark.parametrize(
        ("domain_filter", "name", "matches"),
        [
            (Filter(), "anything", True),
            (Filter(include=("example.com",)), "example.com", True),
            (Filter(include=("example.com",)), "a.Example.com.", True),
            (Filter(include=("example.com",)), "badexample.com", False),
            (Filter(include=("example.com",)), "a-example.com", False),
            (Filter(include=(".example.com",)), "example.com", False),
            (Filter(include=("example.com",), exclude=("x.example.com",)), "y.x.example.com", False),
            (Filter(regex_include="^a"), "a.example.com", True),
            (Filter(regex_include="^a", regex_exclude="com$"), "a.example.com", False),
        ],
    )
    def test_the_filter_matches_on_label_boundaries(self, domain_filter: Filter, name: str, matches: bool) -> None:
        assert matches == domain_filter.matches(name)


class TestRegistry:
    registry = TxtRegistry("me")
    nothing = registry.read([])

    def test_a_create_carries_its_owner_and_a_quoted_ownership_record_at_the_end(self) -> None:
        created = self.registry.write(Changes(create=(a("x.example.com", "192.0.2.1", labels=WANTED),)), self.nothing)

        target = '"heritage=external-dns,external-dns/owner=me,external-dns/resource=crd/default/app"'
        ownership = Endpoint("a-x.example.com", "TXT", (target,), labels={"ownedRecord": "x.example.com"})
        assert created.create == (a("x.example.com", "192.0.2.1", labels=OURS), ownership)

    def test_written_records_are_read_back_as_owned(self) -> None:
        created = self.registry.write(Changes(create=(a("x.example.com", "192.0.2.1", labels=WANTED),)), self.nothing)
        listed = [Endpoint(each.dns_name, each.record_type, each.targets) for each in created.create]

        assert self.registry.read(listed).endpoints == (a("x.example.com", "192.0.2.1", labels=OURS),)

    def test_an_ownership_record_without_quotes_is_understood(self) -> None:
        txt = Endpoint("a-x.example.com", "TXT", ("heritage=external-dns,external-dns/owner=me",))

        known = self.registry.read([a("x.example.com", "192.0.2.1"), txt])

        assert [each.labels for each in known.endpoints] == [{"owner": "me"}]

    def test_an_ownership_record_of_the_old_format_covers_every_type_but_aaaa(self) -> None:
        txt = Endpoint("x.example.com", "TXT", ('"heritage=external-dns,external-dns/owner=other"',))
        held = [a("x.example.com", "192.0.2.1"), Endpoint("x.example.com", "AAAA", ("2001:db8::1",))]

        assert [each.labels for each in self.registry.read([*held, txt]).endpoints] == [{"owner": "other"}, {}]

    def test_a_missing_ownership_record_forces_an_update(self) -> None:
        txt = Endpoint("x.example.com", "TXT", ('"heritage=external-dns,external-dns/owner=me"',))

        known = self.registry.read([a("x.example.com", "192.0.2.1"), txt])

        assert known.endpoints[0].provider_specific == (FORCE_UPDATE,)

    def test_a_text_without_heritage_stays_a_record(self) -> None:
        txt = Endpoint("x.example.com", "TXT", ("v=spf1 -all",))

        assert self.registry.read([txt]).endpoints == (txt,)

    def test_an_ownership_record_that_exists_is_not_created_again(self) -> None:
        known = self.registry.read([Endpoint("a-x.example.com", "TXT", ('"heritage=external-dns"',))])

        changes = self.registry.write(Changes(create=(a("x.example.com", "192.0.2.1"),)), known)

        assert [each.dns_name for each in changes.create] == ["x.example.com"]

    def test_updates_and_deletes_include_their_ownership_records(self) -> None:
        old, new = a("x.example.com", "192.0.2.1", labels=OURS), a("x.example.com", "192.0.2.2", labels=OURS)

        changes = self.registry.write(Changes(update_old=(old,), update_new=(new,), delete=(old,)), self.nothing)

        for endpoints in (changes.update_old, changes.update_new, changes.delete):
            assert [each.dns_name for each in endpoints] == ["x.example.com", "a-x.example.com"]


class TestJson:
    endpoint = Endpoint("x.example.com", "TXT", ("<a&b>",), 300, "id", {"b": "2", "a": "1"}, (("alias", ""),))
    written = (
        rb'{"dnsName":"x.example.com","targets":["\u003ca\u0026b\u003e"],"recordType":"TXT","setIdentifier":"id",'
        rb'"recordTTL":300,"labels":{"a":"1","b":"2"},"providerSpecific":[{"name":"alias"}]}'
    )

    def test_an_endpoint_is_written_as_go_writes_it(self) -> None:
        assert encode_endpoints([self.endpoint, Endpoint("y", "A", ())]) == (
            b"[" + self.written + b',{"dnsName":"y","recordType":"A"}]\n'
        )

    def test_no_endpoints_are_encoded_as_null(self) -> None:
        assert encode_endpoints([]) == b"null\n"

    def test_each_generation_encodes_changes_with_its_own_keys(self) -> None:
        changes = Changes(delete=(self.endpoint,))

        assert encode_changes(changes, Generation.CAMEL) == b'{"delete":[' + self.written + b"]}\n"
        assert encode_changes(changes, Generation.PASCAL) == (
            b'{"Create":null,"UpdateOld":null,"UpdateNew":null,"Delete":[' + self.written + b"]}\n"
        )

    @pytest.mark.parametrize("body", [b"null", b"[]", b"[] trailing"])
    def test_null_and_an_empty_list_decode_to_no_endpoints(self, body: bytes) -> None:
        assert decode_endpoints(body) == ()

    @pytest.mark.parametrize(
        "body",
        [b"", b'{"endpoints":[]}', b"[3]", b'[{"recordTTL":"3"}]', b'[{"recordTTL":3.0}]', b'[{"targets":"x"}]'],
    )
    def test_a_body_that_go_cannot_decode_is_refused(self, body: bytes) -> None:
        with pytest.raises(Undecodable):
            decode_endpoints(body)
