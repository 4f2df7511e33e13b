"""What is kept of an object, and what happens to one that cannot be decoded."""

import json
from typing import Any

import pytest

from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.sources.kubernetes.decode import ObjectDecoder, Rejected
from tunnelgw.sources.kubernetes.failures import Unreachable

METADATA = {
    "name": "a",
    "namespace": "apps",
    "labels": {"kubernetes.io/service-name": "a", "team": "blue"},
    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{...}"},
}


def decoded(kind: Kind, **fields: Any) -> Object | Rejected:
    return ObjectDecoder(RESOURCES[kind]).object(json.dumps({"metadata": METADATA, **fields}).encode())


@pytest.mark.parametrize("kind", [Kind.HTTP_ROUTE, Kind.SERVICE, Kind.CONFIG_MAP])
def test_unused_labels_and_annotations_are_dropped(kind: Kind) -> None:
    item = decoded(kind, spec={})

    assert isinstance(item, Object)
    assert (item.metadata.labels, item.metadata.annotations) == ({}, {})


@pytest.mark.parametrize("kind", [Kind.NAMESPACE, Kind.ENDPOINT_SLICE])
def test_labels_that_selectors_need_are_kept(kind: Kind) -> None:
    item = decoded(kind, addressType="IPv4", endpoints=[])

    assert isinstance(item, Object)
    assert (item.metadata.labels, item.metadata.annotations) == (METADATA["labels"], {})


def test_annotations_of_crds_are_kept() -> None:
    item = decoded(Kind.CUSTOM_RESOURCE_DEFINITION)

    assert isinstance(item, Object)
    assert item.metadata.annotations == METADATA["annotations"]


def test_a_status_is_kept_byte_for_byte_without_the_rest_of_the_response() -> None:
    body = json.dumps({"metadata": METADATA, "spec": {}, "status": {"parents": [], "unknown": 1}}).encode()
    item: Any = ObjectDecoder(RESOURCES[Kind.HTTP_ROUTE]).object(body)

    assert bytes(item.status) == b'{"parents": [], "unknown": 1}'
    held_alive = memoryview(memoryview(item.status).obj)
    assert held_alive.nbytes == len(bytes(item.status))


@pytest.mark.parametrize("kind", [Kind.GATEWAY_CLASS_CONFIG, Kind.GATEWAY_CONFIG, Kind.BACKEND])
def test_fields_of_our_own_kinds_that_only_a_newer_release_knows_are_ignored(kind: Kind) -> None:
    """After a rollback, the CRDs and the objects are still those of the newer release."""
    spec = {"host": "a.example", "port": 1, "direct": {"addresses": ["192.0.2.1"], "newer": 1}, "newer": 1}

    assert isinstance(decoded(kind, spec=spec), Object)


def test_an_object_of_another_shape_is_rejected_with_its_name_and_the_path_of_the_field() -> None:
    item = decoded(Kind.HTTP_ROUTE, spec={"hostnames": "a.example"})

    assert isinstance(item, Rejected)
    assert item.key == Key("apps", "a")
    assert "$.spec.hostnames" in item.problem.reason


@pytest.mark.parametrize("octets", [b"<html>", b'{"metadata": {"name": "\xff"}}', b'{"unknown": ' + b"[" * 100_000])
def test_a_response_without_a_valid_object_counts_as_unreachable(octets: bytes) -> None:
    decoder = ObjectDecoder(RESOURCES[Kind.SERVICE])

    with pytest.raises(Unreachable, match="not JSON"):
        decoder.object(octets)
    with pytest.raises(Unreachable, match="not a list"):
        decoder.page(b'{"metadata": {}, "items": [' + octets)
    with pytest.raises(Unreachable, match="not a watch event"):
        decoder.event(b'{"type": "ADDED", "object": ' + octets)
