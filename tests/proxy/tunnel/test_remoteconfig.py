"""Configurations that the provider pushes: acknowledged, by version, never applied."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tunnel.remoteconfig import (
    LOCAL_CONFIGURATION,
    NO_VERSION,
    MalformedUpdate,
    decode_update,
    encode_answer,
    flaw_of,
)


def test_a_push_is_read_and_acknowledged() -> None:
    update = decode_update(b' {"version": 1, "config": {"ingress": [ ]}, "new": 1} ')

    assert (1, {"ingress": []}) == (update.version, json.loads(update.config))
    assert None is flaw_of(update)
    assert b'{"lastAppliedVersion":1,"err":null}' == encode_answer(1, None)


@pytest.mark.parametrize("body", [b'{"version":0,"config":null}', b'{"version":0}'])
def test_the_push_for_a_tunnel_without_a_configuration_is_acknowledged(body: bytes) -> None:
    update = decode_update(body)

    assert (0, None) == (update.version, flaw_of(update))


def test_a_configuration_that_is_not_an_object_is_refused_in_the_answer() -> None:
    flaw = flaw_of(decode_update(b'{"version":1,"config":[]}'))

    assert flaw is not None
    answer = json.loads(encode_answer(NO_VERSION, flaw))
    assert {"lastAppliedVersion": -1, "err": "the configuration is not a JSON object"} == answer


@pytest.mark.parametrize("config", [b'{"a":"\xff"}', b'{"a":1e999}'])
def test_a_configuration_that_cannot_be_decoded_is_refused_in_the_answer(config: bytes) -> None:
    """Its syntax is valid, its content is not."""
    assert "the configuration cannot be read: " in (flaw_of(decode_update(b'{"version":1,"config":%b}' % config)) or "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"version":"1"}',
        b'{"version":2147483648}',
        b'{"version":-2147483649}',
        b'{"version":1.5}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_push_that_cannot_be_read_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedUpdate, match="a pushed configuration"):
        decode_update(body)


@pytest.mark.parametrize("version", [2147483647, -2147483648])
def test_any_number_of_32_bits_is_a_version(version: int) -> None:
    assert version == decode_update(b'{"version":%d}' % version).version


def test_a_push_without_a_version_is_of_version_0() -> None:
    assert 0 == decode_update(b'{"config":{}}').version


@pytest.mark.parametrize("depth", [100, 2000, 100_000])
def test_a_configuration_of_any_depth_raises_only_malformed_update(depth: int) -> None:
    body = b'{"version":1,"config":%b}' % (b'{"a":' * depth + b"1" + b"}" * depth)
    try:
        update = decode_update(body)
    except MalformedUpdate:
        assert depth > 100
        return
    flaw = flaw_of(update)
    if depth != 2000:  # which the json module of some interpreters decodes, and of others does not
        assert (depth == 100) == (flaw is None)


CONTENTS = st.binary(max_size=60) | st.text(max_size=60).map(str.encode)


@given(CONTENTS | CONTENTS.map(lambda content: b'{"config":"%b"}' % content))
def test_any_bytes_are_an_update_or_malformed(body: bytes) -> None:
    try:
        update = decode_update(body)
    except MalformedUpdate:
        return
    assert isinstance(flaw_of(update), str | None)


def test_the_local_configuration_is_the_minimum_that_the_provider_accepts() -> None:
    assert {"ingress": [], "warp-routing": {}} == json.loads(LOCAL_CONFIGURATION)
