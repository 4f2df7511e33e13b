"""What is kept of an object of the API, and what an object that cannot be read comes to."""

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
def test_labels_and_annotations_that_nobody_reads_are_not_kept(kind: Kind) -> None:
    item = decoded(kind, spec={})

    assert isinstance(item, Object)
    assert (item.metadata.labels, item.metadata.annotations) == ({}, {})


@pytest.mark.parametrize("kind", [Kind.NAMESPACE, Kind.ENDPOINT_SLICE])
def test_labels_by_which_objects_are_selected_are_kept(kind: Kind) -> None:
    item = decoded(kind, addressType="IPv4", endpoints=[])

    assert isinstance(item, Object)
    assert (item.metadata.labels, item.metadata.annotations) == (METADATA["labels"], {})


def test_annotations_of_crds_are_kept_which_tell_the_version_of_gateway_api() -> None:
    item = decoded(Kind.CUSTOM_RESOURCE_DEFINITION)

    assert isinstance(item, Object)
    assert item.metadata.annotations == METADATA["annotations"]


def test_a_status_is_kept_byte_for_byte_and_holds_no_other_bytes_alive() -> None:
    body = json.dumps({"metadata": METADATA, "spec": {}, "status": {"parents": [], "unknown": 1}}).encode()
    item: Any = ObjectDecoder(RESOURCES[Kind.HTTP_ROUTE]).object(body)

    assert bytes(item.status) == b'{"parents": [], "unknown": 1}'
    held_alive = memoryview(memoryview(item.status).obj)
    assert held_alive.nbytes == len(bytes(item.status))


def test_an_object_of_another_shape_is_rejected_by_name_and_says_where() -> None:
    item = decoded(Kind.HTTP_ROUTE, spec={"hostnames": "a.example"})

    assert isinstance(item, Rejected)
    assert item.key == Key("apps", "a")
    assert "$.spec.hostnames" in item.problem.reason


@pytest.mark.parametrize("octets", [b"<html>", b'{"metadata": {"name": "\xff"}}', b'{"unknown": ' + b"[" * 100_000])
def test_what_is_no_object_at_all_is_a_fault_of_the_server(octets: bytes) -> None:
    decoder = ObjectDecoder(RESOURCES[Kind.SERVICE])

    with pytest.raises(Unreachable, match="not JSON"):
        decoder.object(octets)
    with pytest.raises(Unreachable, match="not a list"):
        decoder.page(b'{"metadata": {}, "items": [' + octets)
    with pytest.raises(Unreachable, match="not a watch event"):
        decoder.event(b'{"type": "ADDED", "object": ' + octets)
