"""Rows of types that a controller has and this program does not know, in whatever form."""

import json
from typing import Any

import pytest

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreUnreachable
from dnswebhook.model import Origin, Record
from dnswebhook.stores.unifi.store import UnifiStore
from tests.support.controller import Controller, Reply

RECORDS: dict[str, dict[str, Any]] = {
    "v2": {"_id": "65f0c0ffee0123456789abcd", "key": "a.example.com", "record_type": "A", "value": "192.0.2.1"},
    "integration": {
        "id": "0192b7e0-51aa-4c00-8000-000000000001",
        "type": "A_RECORD",
        "domain": "a.example.com",
        "ipv4Address": "192.0.2.1",
    },
}
"""By API."""
STRANGE: dict[str, dict[str, Any]] = {
    "v2": {"key": None, "value": ["192.0.2.1"], "ttl": "auto", "priority": 1.5, "port": {"from": 1}, "enabled": "yes"},
    "integration": {"domain": None, "text": ["a"], "ttlSeconds": "auto", "port": "80-90", "metadata": "none"},
}
"""Properties of ours, by API, in forms that no record has them in."""


def shown(controller: Controller, api: str, *rows: dict[str, Any]) -> None:
    page = {"offset": 0, "limit": 200, "count": len(rows), "totalCount": len(rows), "data": rows}
    controller.fault(Reply(status=200, body=json.dumps(rows if api == "v2" else page)), "list")


def strange(api: str, name: str, row_id: str = "other", type: str = "HTTPS") -> dict[str, Any]:
    kind = {"_id": row_id, "record_type": type} if api == "v2" else {"id": row_id, "type": type}
    return {**kind, name: STRANGE[api][name]}


def record_of(api: str, origin: Origin = Origin.USER_DEFINED) -> Record:
    row_id = RECORDS[api].get("_id") or RECORDS[api]["id"]
    return Record(row_id, "a.example.com", "A", "192.0.2.1", origin=origin)


def test_a_row_of_an_unknown_type_does_not_keep_other_records_from_being_listed(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str
) -> None:
    shown(controller, api, *(strange(api, name, f"other-{name}") for name in STRANGE[api]), RECORDS[api])

    assert store.list_records(deadline).records == (record_of(api),)


def test_a_record_that_shares_its_id_with_a_row_of_an_unknown_type_is_ambiguous(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str
) -> None:
    property_name = next(iter(STRANGE[api]))
    shown(controller, api, RECORDS[api], strange(api, property_name, record_of(api).id))

    assert store.list_records(deadline).records == (record_of(api, Origin.AMBIGUOUS),)


def test_a_record_that_cannot_be_read_fails_the_listing_and_is_named(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str
) -> None:
    """Without it a name would look free, or an ownership record would seem to vouch for nothing."""
    property_name = next(iter(STRANGE[api]))
    type = RECORDS[api].get("record_type") or RECORDS[api]["type"]
    shown(controller, api, RECORDS[api], strange(api, property_name, type=type))

    with pytest.raises(StoreUnreachable, match=rf"got `null` - at `\$\.{property_name}`, in row 1"):
        store.list_records(deadline)


@pytest.mark.parametrize("is_id", [True, False], ids=["id", "type"])
def test_a_row_without_a_readable_id_or_type_fails_the_listing_and_is_named(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str, is_id: bool
) -> None:
    name = list(strange(api, next(iter(STRANGE[api]))))[0 if is_id else 1]
    shown(controller, api, RECORDS[api], {**RECORDS[api], name: None})

    with pytest.raises(StoreUnreachable, match=rf"got `null` - at `\$\.{name}`, in row 1"):
        store.list_records(deadline)
