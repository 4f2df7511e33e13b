"""Which version replaces which."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from proxy.document import Listener
from proxy.supervisor.api import MAX_TAKING
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.sockets import ListeningSockets
from tests.proxy.site import Proxy

ONE = {"routes": [{"hostnames": ["a.example"], "backends": [{"address": "127.0.0.1:3000"}]}]}
OTHER = {"routes": [{"hostnames": ["b.example"], "backends": [{"address": "127.0.0.1:3000"}]}]}


def test_a_document_without_a_version_gets_the_next_one() -> None:
    with Proxy() as proxy:
        assert proxy.use(ONE) == {"version": 1, "changed": True}
        assert proxy.use(OTHER) == {"version": 2, "changed": True}
        assert proxy.use({"version": 10, **ONE}) == {"version": 10, "changed": True}
        assert proxy.use(OTHER) == {"version": 11, "changed": True}


def test_the_loaded_version_with_equal_content_changes_nothing_however_it_is_formatted() -> None:
    with Proxy() as proxy:
        proxy.use({"version": 5, **ONE})
        loaded_at_s = proxy.metric("tunnelgw_proxy_config_loaded_timestamp_seconds")

        assert proxy.use({**ONE, "listeners": [], "version": 5}) == {"version": 5, "changed": False}
        assert proxy.metric("tunnelgw_proxy_config_swaps_total") == 1
        assert proxy.metric("tunnelgw_proxy_config_loaded_timestamp_seconds") == loaded_at_s


@pytest.mark.parametrize("version", [5, 4, 0])
def test_an_older_version_and_the_loaded_one_with_other_content_are_refused_with_the_loaded_one(version: int) -> None:
    with Proxy() as proxy:
        proxy.use({"version": 5, **ONE})

        response = proxy.put({"version": version, **OTHER})

        assert response.status_code == 409
        assert response.json()["loaded"] == 5
        assert proxy.get().json()["routes"][0]["hostnames"] == ["a.example"]


def test_an_older_version_is_refused_even_with_the_loaded_content() -> None:
    with Proxy() as proxy:
        proxy.use({"version": 5, **ONE})

        assert proxy.put({"version": 4, **ONE}).status_code == 409


def test_a_newer_version_with_equal_content_is_taken_over_without_a_swap() -> None:
    with Proxy() as proxy:
        proxy.use({"version": 5, **ONE})

        assert proxy.use({"version": 6, **ONE}) == {"version": 6, "changed": False}
        assert proxy.put({"version": 5, **ONE}).status_code == 409
        assert proxy.metric("tunnelgw_proxy_config_swaps_total") == 1
        assert proxy.metric("tunnelgw_proxy_config_version") == 6


def test_the_first_document_may_have_any_version_and_the_largest_has_no_successor() -> None:
    with Proxy() as proxy:
        assert proxy.use({"version": 2**63 - 1, **ONE})["version"] == 2**63 - 1

        response = proxy.put(OTHER)

        assert (response.status_code, response.json()["loaded"]) == (409, 2**63 - 1)


def test_a_refused_document_leaves_version_and_content_alone() -> None:
    with Proxy() as proxy:
        proxy.use({"version": 5, **ONE})

        assert proxy.put({"version": 6, "routes": [{"hostnames": ["NO"]}]}).status_code == 400
        assert proxy.metric("tunnelgw_proxy_config_refused_total") == 1
        assert proxy.use(OTHER)["version"] == 6


def test_concurrent_documents_are_processed_one_after_another() -> None:
    with Proxy("--workers", "2") as proxy:
        proxy.address("config")
        versions: list[int] = []

        def send(place: int) -> None:
            for number in range(3):
                route = {"hostnames": [f"h{number}-{place}.example"], "backends": [{"address": "127.0.0.1:3000"}]}
                versions.append(proxy.use({"routes": [route]})["version"])

        # More would be refused if the first ones were late with their bodies.
        threads = [threading.Thread(target=send, args=(place,)) for place in range(MAX_TAKING)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(versions) == list(range(1, 3 * MAX_TAKING + 1))
        assert proxy.get().json()["version"] == 12


def test_a_document_that_a_bug_kept_from_use_counts_as_changed_when_it_is_loaded_again(tmp_path: Path) -> None:
    """It was answered as if workers already served it."""

    class BrokenOnce(ListeningSockets):
        is_broken = True

        def use(self, listeners: Iterable[Listener]) -> None:
            if self.is_broken:
                self.is_broken = False
                raise RuntimeError("a bug")
            super().use(listeners)

    configuration = Configuration(Fleet([]), BrokenOnce(0), None)
    path = tmp_path / "document.json"
    path.write_text(json.dumps(ONE))

    with pytest.raises(RuntimeError, match="a bug"):
        configuration.load_file(path)

    assert configuration.loaded is None
    assert configuration.load_file(path)
    assert not configuration.load_file(path)
