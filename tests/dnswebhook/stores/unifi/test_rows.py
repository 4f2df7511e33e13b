"""Both APIs' rows against records, byte for byte."""

import msgspec
import pytest

from dnswebhook.errors import RecordError
from dnswebhook.model import Origin, Record, RecordSpec
from dnswebhook.stores.unifi import integrationrows, v2rows
from dnswebhook.stores.unifi.integrationrows import PolicyRow
from dnswebhook.stores.unifi.v2rows import V2Row

SPECS = {
    "A": RecordSpec("app.example.com", "A", "192.0.2.10", 300),
    "AAAA": RecordSpec("app.example.com", "AAAA", "2001:db8::1", 0),
    "CNAME": RecordSpec("www.example.com", "CNAME", "app.example.com", 60),
    "TXT": RecordSpec("a-app.example.com", "TXT", '"heritage=external-dns,external-dns/owner=me"'),
    "MX": RecordSpec("example.com", "MX", "0 mail.example.com"),
    "SRV": RecordSpec("_sip._tcp.example.com", "SRV", "1 2 5060 sip.example.com."),
}

V2_BODIES = {
    "A": b'{"key":"app.example.com","record_type":"A","value":"192.0.2.10","enabled":true,"ttl":300}',
    "AAAA": b'{"key":"app.example.com","record_type":"AAAA","value":"2001:db8::1","enabled":true,"ttl":0}',
    "CNAME": b'{"key":"www.example.com","record_type":"CNAME","value":"app.example.com","enabled":true,"ttl":60}',
    "TXT": b'{"key":"a-app.example.com","record_type":"TXT",'
    b'"value":"\\"heritage=external-dns,external-dns/owner=me\\"","enabled":true}',
    "MX": b'{"key":"example.com","record_type":"MX","value":"mail.example.com","enabled":true,"priority":0}',
    "SRV": b'{"key":"_sip._tcp.example.com","record_type":"SRV","value":"sip.example.com","enabled":true,'
    b'"priority":1,"weight":2,"port":5060}',
}

POLICY_BODIES = {
    "A": b'{"type":"A_RECORD","domain":"app.example.com","ipv4Address":"192.0.2.10","ttlSeconds":300,"enabled":true}',
    "AAAA": b'{"type":"AAAA_RECORD","domain":"app.example.com","ipv6Address":"2001:db8::1","ttlSeconds":0,'
    b'"enabled":true}',
    "CNAME": b'{"type":"CNAME_RECORD","domain":"www.example.com","targetDomain":"app.example.com","ttlSeconds":60,'
    b'"enabled":true}',
    "TXT": b'{"type":"TXT_RECORD","domain":"a-app.example.com",'
    b'"text":"\\"heritage=external-dns,external-dns/owner=me\\"","enabled":true}',
    "MX": b'{"type":"MX_RECORD","domain":"example.com","mailServerDomain":"mail.example.com","priority":0,'
    b'"enabled":true}',
    "SRV": b'{"type":"SRV_RECORD","service":"_sip","protocol":"_tcp","domain":"example.com",'
    b'"serverDomain":"sip.example.com","port":5060,"priority":1,"weight":2,"enabled":true}',
}


@pytest.mark.parametrize("record_type", SPECS)
def test_a_v2_row_is_sent_with_the_fields_of_its_type_only(record_type: str) -> None:
    assert v2rows.body_of(SPECS[record_type]) == V2_BODIES[record_type]


@pytest.mark.parametrize("record_type", SPECS)
def test_a_policy_is_sent_with_the_properties_of_its_type_only(record_type: str) -> None:
    assert integrationrows.body_of(SPECS[record_type]) == POLICY_BODIES[record_type]


@pytest.mark.parametrize("record_type", SPECS)
def test_what_is_sent_reads_back_as_the_same_record(record_type: str) -> None:
    spec = SPECS[record_type]
    row = msgspec.json.decode(v2rows.body_of(spec, "65f0"), type=V2Row)
    policy = msgspec.json.decode(integrationrows.body_of(spec), type=PolicyRow)

    assert v2rows.record_of(row) == Record("65f0", spec.name, spec.type, spec.value, spec.ttl_s)
    assert integrationrows.record_of(policy).spec == spec


def test_the_body_of_an_update_contains_the_id_of_its_row() -> None:
    assert v2rows.body_of(SPECS["A"], "65f0").endswith(b'"ttl":300,"_id":"65f0"}')


def test_rows_of_old_firmware_without_numbers_and_of_new_firmware_with_new_fields_are_read() -> None:
    old = b'{"_id":"1","enabled":true,"key":"example.com","record_type":"MX","value":"mail.example.com"}'
    new = b'{"_id":"2","key":"App.Example.com.","record_type":"A","value":"192.0.2.1","ttl":null,"colour":{"a":[1]}}'
    rows = msgspec.json.decode(b"[" + old + b"," + new + b"]", type=list[V2Row])

    assert v2rows.records_of(rows) == (
        Record("1", "example.com", "MX", "0 mail.example.com"),
        Record("2", "app.example.com", "A", "192.0.2.1"),
    )


def test_stored_spellings_become_canonical() -> None:
    aaaa = V2Row("1", True, "APP.example.com", "AAAA", "2001:DB8:0:0::1")
    srv = V2Row("2", True, "_sip._tcp.example.com", "SRV", "SIP.example.com.", priority=1, weight=2, port=3)

    assert [record.value for record in v2rows.records_of([aaaa, srv])] == ["2001:db8::1", "1 2 3 sip.example.com."]


def test_rows_of_conditional_forwarding_are_not_listed_as_records() -> None:
    assert v2rows.records_of([V2Row("1", True, "corp.example.com", "NS", "192.0.2.53")]) == ()
    assert integrationrows.records_of([PolicyRow("1", "FORWARD_DOMAIN", domain="corp.example.com")]) == ()
    assert integrationrows.records_of([PolicyRow("1", "TYPE_OF_THE_FUTURE", domain="x.example.com")]) == ()


def test_disabled_rows_are_listed_as_such() -> None:
    assert not v2rows.record_of(V2Row("1", False, "a.example.com", "A", "192.0.2.1")).is_enabled


def test_rows_that_share_an_id_are_ambiguous() -> None:
    row = V2Row("1", True, "a.example.com", "A", "192.0.2.1")
    sibling = V2Row("1", True, "b.example.com", "A", "192.0.2.1")
    single = V2Row("2", True, "c.example.com", "A", "192.0.2.1")

    origins = [record.origin for record in v2rows.records_of([row, sibling, single])]

    assert origins == [Origin.AMBIGUOUS, Origin.AMBIGUOUS, Origin.USER_DEFINED]


def test_a_row_without_an_id_is_ambiguous() -> None:
    """A write would go to the path of all rows."""
    row = V2Row("", True, "a.example.com", "A", "192.0.2.1")
    policy = PolicyRow("", "A_RECORD", domain="a.example.com", ipv4_address="192.0.2.1")

    assert v2rows.record_of(row).origin is Origin.AMBIGUOUS
    assert integrationrows.record_of(policy).origin is Origin.AMBIGUOUS


def test_an_id_shared_with_a_row_that_is_not_a_record_is_ambiguous_too() -> None:
    forward = V2Row("1", True, "corp.example.com", "NS", "192.0.2.53")
    row = V2Row("1", True, "a.example.com", "A", "192.0.2.1")

    assert [record.origin for record in v2rows.records_of([forward, row])] == [Origin.AMBIGUOUS]


@pytest.mark.parametrize("origin", ["SYSTEM_DEFINED", "DERIVED", "ORCHESTRATED", "NEW_IN_12"])
def test_policies_that_no_user_made_are_derived(origin: str) -> None:
    text = b'{"id":"1","type":"A_RECORD","domain":"a.b","ipv4Address":"192.0.2.1","metadata":{"origin":"%s"}}'
    row = msgspec.json.decode(text % origin.encode(), type=PolicyRow)

    assert integrationrows.record_of(row).origin is Origin.DERIVED


@pytest.mark.parametrize("metadata", [b"", b',"metadata":null', b',"metadata":{}'])
def test_a_policy_that_does_not_say_who_made_it_is_the_user_s(metadata: bytes) -> None:
    text = b'{"id":"1","type":"A_RECORD","domain":"a.b","ipv4Address":"192.0.2.1"%s}'
    row = msgspec.json.decode(text % metadata, type=PolicyRow)

    assert integrationrows.record_of(row).origin is Origin.USER_DEFINED


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (RecordSpec("sip.example.com", "SRV", "1 2 3 h.example.com."), "want `_service._protocol.domain`"),
        (RecordSpec("_sip._tcp", "SRV", "1 2 3 h.example.com."), "want `_service._protocol.domain`"),
        (RecordSpec("_sip._tcp.example.com", "SRV", "1 2 h"), "want `priority weight port host`"),
        (RecordSpec("example.com", "MX", "mail"), "want `preference host`"),
        (RecordSpec("example.com", "NS", "ns.example.com"), "record type NS"),
    ],
)
def test_a_record_that_a_policy_cannot_express_is_refused_before_sending(spec: RecordSpec, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        integrationrows.body_of(spec)


@pytest.mark.parametrize(
    ("held", "read"), [(None, 0), (0, 0), (300, 300), (-1, 0), (2**31 - 1, 2**31 - 1), (2**63, 2**31 - 1)]
)
def test_a_ttl_that_external_dns_could_not_read_is_brought_within_bounds(held: int | None, read: int) -> None:
    """With more than 64 bits, external-dns could not decode the whole listing, and would exit."""
    v2 = V2Row("65f0c0ffee0123456789abcd", key="app.example.com", record_type="A", value="192.0.2.1", ttl=held)
    policy = PolicyRow(
        id="a-policy", type="A_RECORD", domain="app.example.com", ipv4_address="192.0.2.1", ttl_seconds=held
    )

    assert v2rows.record_of(v2).ttl_s == read
    assert integrationrows.record_of(policy).ttl_s == read
