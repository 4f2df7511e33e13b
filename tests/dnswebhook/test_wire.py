"""Bytes to model and back: what each generation of external-dns sends, and what it must be able to read."""

import json
import random
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dnswebhook.model import Changes, Endpoint
from dnswebhook.wire import (
    INVALID,
    MALFORMED,
    WireError,
    decode_changes,
    decode_endpoint,
    decode_endpoint_list,
    encode_endpoint,
    encode_error,
    encode_filter,
    join_endpoints,
)

APP = Endpoint(
    "app.example.com",
    "A",
    ("192.0.2.10", "192.0.2.11"),
    300,
    labels={"owner": "default", "resource": "ingress/default/app"},
)
APP_JSON = (
    b'{"dnsName":"app.example.com","targets":["192.0.2.10","192.0.2.11"],"recordType":"A","recordTTL":300,'
    b'"labels":{"owner":"default","resource":"ingress/default/app"}}'
)


class TestChanges:
    @pytest.mark.parametrize(
        "body",
        [
            b'{"create":[%s]}',
            b'{"Create":[%s],"UpdateOld":null,"UpdateNew":null,"Delete":null}',
            b'{"Create":[%s],"updateOld":[],"UPDATENEW":[],"delete":null}',
            b' {"create" : [ %s ] , "unknown": {"deep": [1, {"x": null}]}}\r\n',
            b'{"CREATE":[],"create":[%s]}',
        ],
        ids=["since 0.17", "up to 0.16", "mixed", "spaces and unknown keys", "the later of two keys"],
    )
    def test_every_generation_is_understood(self, body: bytes) -> None:
        assert decode_changes(body % APP_JSON) == Changes(create=(APP,))

    def test_each_list_is_decoded_under_its_own_name(self) -> None:
        body = (
            b'{"delete":[{"dnsName":"d"}],"updateNew":[{"dnsName":"n"}],'
            b'"updateOld":[{"dnsName":"o"}],"create":[{"dnsName":"c"}]}'
        )

        changes = decode_changes(body)

        seen = [[endpoint.dns_name for endpoint in getattr(changes, field)] for field in changes.__struct_fields__]
        assert seen == [["c"], ["o"], ["n"], ["d"]]

    @pytest.mark.parametrize("body", [b"{}", b'{"create":null}', b'{"Delete":[]}', b'{"other":1}'])
    def test_absent_null_and_empty_are_the_same(self, body: bytes) -> None:
        assert decode_changes(body).is_empty

    def test_null_for_an_optional_field_is_the_same_as_absent(self) -> None:
        body = (
            b'{"dnsName":"x","recordType":null,"targets":null,"recordTTL":null,"setIdentifier":null,"labels":null,'
            b'"providerSpecific":null}'
        )

        assert decode_endpoint(b'{"dnsName":"x"}', "") == decode_endpoint(body, "") == Endpoint("x", "", ())

    def test_every_field_of_an_endpoint_is_kept(self) -> None:
        body = (
            b'{"dnsName":"b\\u00fccher.example.","targets":["\\u003cb\\u003e"],"recordType":"TXT","setIdentifier":"id",'
            b'"recordTTL":9223372036854775807,"labels":{"owner":"me"},'
            b'"providerSpecific":[{"name":"webhook/x","value":"1"},{"name":"alias"},{"value":null}]}'
        )

        wanted = Endpoint(
            "bücher.example.",
            "TXT",
            ("<b>",),
            9223372036854775807,
            "id",
            {"owner": "me"},
            (("webhook/x", "1"), ("alias", ""), ("", "")),
        )
        assert wanted == decode_endpoint(body, "")

    def test_the_keys_of_an_endpoint_match_in_any_letter_case_and_the_later_wins(self) -> None:
        body = (
            b'{"dnsname":"old","DnsName":"new","RECORDTYPE":"A","Targets":["192.0.2.1"],"recordttl":5,"SetIdentifier":"s",'
            b'"Labels":{"Owner":"Me"},"ProviderSpecific":[{"Name":"n","VALUE":"v"}],"extra":{"dnsName":"other"}}'
        )

        assert Endpoint("new", "A", ("192.0.2.1",), 5, "s", {"Owner": "Me"}, (("n", "v"),)) == decode_endpoint(body, "")

    def test_a_negative_ttl_is_read_since_a_user_can_write_one(self) -> None:
        assert decode_endpoint(b'{"dnsName":"a","recordTTL":-1}', "") == Endpoint("a", "", (), -1)


class TestPlaces:
    """An error names the field and its place."""

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b'{"create":[%s,{"recordType":"A"}]}', "create[1].dnsName: missing, want a name"),
            (b'{"Delete":[{"dnsName":""}]}', "delete[0].dnsName: expected str of length >= 1, got ''"),
            (b'{"delete":[{"dnsName":null}]}', "delete[0].dnsName: expected str, got null"),
            (b'{"updateNew":[{"dnsName":"a","recordTTL":"3"}]}', "updateNew[0].recordTTL: expected int, got str"),
            (b'{"updateNew":[{"dnsName":"a","recordTTL":1.5}]}', "updateNew[0].recordTTL: expected int, got float"),
            (
                b'{"updateNew":[{"dnsName":"a","recordTTL":9223372036854775808}]}',
                "updateNew[0].recordTTL: expected int <= 9223372036854775807, got 9223372036854775808",
            ),
            (b'{"updateOld":[{"DnsName":"a","Targets":"b"}]}', "updateOld[0].targets: expected array, got str"),
            (b'{"updateOld":[{"dnsName":"a","targets":["b",3]}]}', "updateOld[0].targets[1]: expected str, got int"),
            (b'{"create":[{"dnsName":"a","labels":[]}]}', "create[0].labels: expected object, got array"),
            (b'{"create":[{"dnsName":"a","labels":{"x":1}}]}', "create[0].labels[...]: expected str, got int"),
            (
                b'{"create":[{"dnsName":"a","providerSpecific":{"name":"x"}}]}',
                "create[0].providerSpecific: expected array, got object",
            ),
            (
                b'{"create":[{"dnsName":"a","providerSpecific":[{"name":1}]}]}',
                "create[0].providerSpecific[0].name: expected str, got int",
            ),
            (b'{"create":[null]}', "create[0]: expected object, got null"),
            (b'{"create":[["a"]]}', "create[0]: expected object, got array"),
            (b'{"create":{}}', "create: expected array, got object"),
            (b'{"DELETE":true}', "delete: expected array, got bool"),
            (b"[]", "body: expected object, got array"),
            (b"null", "body: expected object, got null"),
            (b'"{}"', "body: expected object, got str"),
        ],
    )
    def test_a_wrong_field_is_named(self, body: bytes, message: str) -> None:
        with pytest.raises(WireError) as caught:
            decode_changes(body.replace(b"%s", APP_JSON))

        assert (INVALID, message) == (caught.value.category, str(caught.value))

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "body: the text is truncated"),
            (b'{"create":[', "body: the text is truncated"),
            (b"{} {}", "body: trailing characters"),
            (b"{'create':[]}", "body: object keys must be strings (byte 1)"),
            (b'{"create":[{"dnsName":"a","recordTTL":NaN}]}', "body: invalid character (byte 38)"),
            (b"[" * 1_000_000, "body: expected object, got array"),
            (b'{"x":' + b"[" * 1_000_000, "body: nested too deeply, want a list of flat objects"),
            (b'{"create":[{"dnsName":"\xff"}]}', "create[0]: invalid UTF-8: "),
            (b'{"create":[{"dnsName":"\\ud800"}]}', "body: "),
        ],
    )
    def test_what_is_not_json_is_refused(self, body: bytes, message: str) -> None:
        with pytest.raises(WireError) as caught:
            decode_changes(body)

        assert str(caught.value).startswith(message)
        assert (INVALID if "expected" in message else MALFORMED) == caught.value.category

    def test_a_huge_number_is_cut_in_the_error(self) -> None:
        with pytest.raises(WireError) as caught:
            decode_changes(b'{"create":[{"dnsName":"a","recordTTL":' + b"9" * 4000 + b"}]}")

        assert len(str(caught.value)) < 200

    def test_the_place_of_an_endpoint_to_adjust_depends_on_the_shape_of_the_body(self) -> None:
        bare = decode_endpoint_list(b'[{"dnsName":"a"},{}]')
        wrapped = decode_endpoint_list(b'{"endpoints":[{}]}')

        with pytest.raises(WireError, match=r"^\[1\]\.dnsName: missing"):
            decode_endpoint(bare.items[1], bare.place(1))
        with pytest.raises(WireError, match=r"^endpoints\[0\]\.dnsName: missing"):
            decode_endpoint(wrapped.items[0], wrapped.place(0))


class TestEndpointList:
    @pytest.mark.parametrize(
        ("body", "is_wrapped", "count"),
        [
            (b"[]", False, 0),
            (b"null", False, 0),
            (b"\n[%s, %s]\n", False, 2),
            (b'{"endpoints":[]}', True, 0),
            (b'{"endpoints":null}', True, 0),
            (b' {"other":1,"Endpoints":[%s]}', True, 1),
        ],
    )
    def test_both_shapes_are_told_apart(self, body: bytes, is_wrapped: bool, count: int) -> None:
        endpoints = decode_endpoint_list(body.replace(b"%s", APP_JSON))

        assert (is_wrapped, count) == (endpoints.is_wrapped, len(endpoints.items))
        assert all(decode_endpoint(raw, endpoints.place(i)) == APP for i, raw in enumerate(endpoints.items))

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"{}", "endpoints: missing, want a list"),
            (b'{"endpoints":3}', "endpoints: expected array, got int"),
            (b'"x"', "body: expected array, got str"),
            (b" ", "body: the text is truncated"),
        ],
    )
    def test_an_object_without_the_list_is_refused_rather_than_taken_for_empty(self, body: bytes, message: str) -> None:
        with pytest.raises(WireError) as caught:
            decode_endpoint_list(body)

        assert message == str(caught.value)


class TestEncoding:
    def test_an_endpoint_is_encoded_with_its_required_keys_and_no_empty_one(self) -> None:
        assert (
            encode_endpoint(Endpoint("x.example.com", "A", ()))
            == b'{"dnsName":"x.example.com","recordType":"A","targets":[],"recordTTL":0}'
        )

    def test_a_full_endpoint_is_written_byte_for_byte(self) -> None:
        endpoint = Endpoint("ö<x", "TXT", ('"a,b"', "c"), 60, "s", {"owner": "o"}, (("alias", ""), ("webhook/y", "2")))

        wanted = (
            '{"dnsName":"ö<x","recordType":"TXT","targets":["\\"a,b\\"","c"],"recordTTL":60,"setIdentifier":"s",'
            '"labels":{"owner":"o"},"providerSpecific":[{"name":"alias","value":""},{"name":"webhook/y","value":"2"}]}'
        )
        assert wanted.encode() == encode_endpoint(endpoint)

    def test_a_list_is_never_null_in_either_shape(self) -> None:
        assert join_endpoints([], is_wrapped=False) == b"[]"
        assert join_endpoints([], is_wrapped=True) == b'{"endpoints":[]}'

    def test_parts_are_joined_in_either_shape(self) -> None:
        parts = [b'{"dnsName":"a"}', b'{"dnsName":"b"}']

        assert join_endpoints(iter(parts), is_wrapped=False) == b'[{"dnsName":"a"},{"dnsName":"b"}]'
        assert join_endpoints(iter(parts), is_wrapped=True) == b'{"endpoints":[{"dnsName":"a"},{"dnsName":"b"}]}'

    def test_a_filter_of_lists_has_the_list_keys_at_the_root(self) -> None:
        wanted = (
            b'{"domainFilter":{"filters":["example.com"],"exclude":["x.example.com"],"regexFilter":"","regexExclude":""},'
            b'"include":["example.com"],"exclude":["x.example.com"]}'
        )
        assert wanted == encode_filter(include=["example.com"], exclude=["x.example.com"])

    def test_a_filter_of_expressions_has_the_expression_keys_at_the_root(self) -> None:
        wanted = (
            b'{"domainFilter":{"filters":[],"exclude":[],"regexFilter":"^a\\\\.b$","regexExclude":""},'
            b'"regexInclude":"^a\\\\.b$"}'
        )
        assert wanted == encode_filter(regex_include=r"^a\.b$")

    def test_without_a_filter_the_root_has_no_filter_keys(self) -> None:
        wanted = b'{"domainFilter":{"filters":[],"exclude":[],"regexFilter":"","regexExclude":""}}'
        assert wanted == encode_filter()

    def test_an_error_is_valid_json_whatever_it_quotes(self) -> None:
        body = encode_error("bad request", 'a "quote", \x00 and half a character \ud800')

        assert json.loads(body) == {"error": "bad request", "message": 'a "quote", \x00 and half a character ?'}


texts = st.text(st.characters(exclude_categories=["Cs"]))
endpoints = st.builds(
    Endpoint,
    dns_name=texts.filter(bool),
    record_type=texts,
    targets=st.lists(texts).map(tuple),
    ttl_s=st.integers(0, 2**63 - 1),
    set_identifier=texts,
    labels=st.dictionaries(texts, texts),
    provider_specific=st.lists(st.tuples(texts, texts)).map(tuple),
)
KEYS = """create UpdateOld updateNew DELETE endpoints dnsName DnsName recordType targets recordTTL
    setIdentifier labels providerSpecific name value"""
keys = st.sampled_from(KEYS.split())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(), inner, max_size=3),
    max_leaves=6,
)


class TestProperties:
    @given(endpoints)
    def test_an_encoded_endpoint_decodes_to_the_same(self, endpoint: Endpoint) -> None:
        assert endpoint == decode_endpoint(encode_endpoint(endpoint), "")

    @given(endpoints, st.randoms())
    def test_letter_case_of_keys_never_matters(self, endpoint: Endpoint, chance: random.Random) -> None:
        written = json.loads(encode_endpoint(endpoint))
        odd = {"".join(chance.choice((c.upper(), c)) for c in key): value for key, value in written.items()}

        assert endpoint == decode_endpoint(json.dumps(odd).encode(), "")

    @given(st.binary())
    @example(b'{"create":[' + b"[" * 100_000)
    def test_any_bytes_give_a_value_or_a_wire_error(self, body: bytes) -> None:
        decode_or_refuse(body)

    @given(json_values)
    def test_any_json_gives_a_value_or_a_wire_error(self, value: object) -> None:
        decode_or_refuse(json.dumps(value).encode())

    @given(st.dictionaries(keys, st.lists(st.dictionaries(keys, json_values, max_size=4), max_size=3), max_size=4))
    def test_almost_right_json_gives_a_value_or_a_wire_error(self, value: object) -> None:
        decode_or_refuse(json.dumps(value).encode())


def decode_or_refuse(body: bytes) -> None:
    """Anything but a WireError would be answered with 500, as a bug of ours."""
    with suppress(WireError):
        decode_changes(body)
    with suppress(WireError):
        endpoints = decode_endpoint_list(body)
        for index, raw in enumerate(endpoints.items):
            decode_endpoint(raw, endpoints.place(index))
