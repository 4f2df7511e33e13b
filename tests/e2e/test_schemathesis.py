"""The running service keeps to its OpenAPI file, whatever requests the file allows and forbids."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

import dnswebhook.openapi
from tests.support.daemon import Daemon

schema = schemathesis.openapi.from_path(Path(dnswebhook.openapi.__file__).with_name("webhook.yaml"))

CONFORMANCE = [
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
REQUEST_TIMEOUT_S = 20.0

# Examples of one run share a store, so a failure may depend on the ones before it: shrinking would mislead.
run_settings = settings(
    max_examples=60,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def webhook_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a daemon that keeps records in a folder of its own."""
    with Daemon.dnswebhook({"DNSWEBHOOK_STATE_DIR": str(tmp_path_factory.mktemp("state"))}) as daemon:
        yield daemon.url("api")


def conforms(case: schemathesis.Case[Any], url: str) -> None:
    """500 is among them: an apply refuses record sets that no store can hold, after the others are applied."""
    case.call_and_validate(base_url=url, checks=CONFORMANCE, timeout=REQUEST_TIMEOUT_S)


def is_accepted(case: schemathesis.Case[Any], url: str) -> None:
    case.call_and_validate(base_url=url, checks=[positive_data_acceptance, not_a_server_error])


# One test an operation: schemathesis gives all of a function the same name, and pytest-xdist runs one of each name.


@schema.include(operation_id="negotiate").parametrize()
@run_settings
def test_every_response_to_a_negotiation_conforms_to_the_openapi_file(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    conforms(case, webhook_url)


@schema.include(operation_id="listRecords").parametrize()
@run_settings
def test_every_response_to_a_listing_conforms_to_the_openapi_file(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    conforms(case, webhook_url)


@schema.include(operation_id="applyChanges").parametrize()
@run_settings
def test_every_response_to_an_apply_conforms_to_the_openapi_file(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    conforms(case, webhook_url)


@schema.include(operation_id="adjustEndpoints").parametrize()
@run_settings
def test_every_response_to_an_adjustment_conforms_to_the_openapi_file(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    conforms(case, webhook_url)


@schema.include(operation_id="negotiate").parametrize()
@run_settings
def test_a_negotiation_that_the_openapi_file_allows_is_accepted_without_a_server_error(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    is_accepted(case, webhook_url)


@schema.include(operation_id="listRecords").parametrize()
@run_settings
def test_a_listing_that_the_openapi_file_allows_is_accepted_without_a_server_error(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    is_accepted(case, webhook_url)


@schema.include(operation_id="adjustEndpoints").parametrize()
@run_settings
def test_an_adjustment_that_the_openapi_file_allows_is_accepted_without_a_server_error(
    case: schemathesis.Case[Any], webhook_url: str
) -> None:
    is_accepted(case, webhook_url)


def test_every_operation_of_the_openapi_file_has_its_tests() -> None:
    operations = {
        operation["operationId"] for path in schema.raw_schema["paths"].values() for operation in path.values()
    }

    assert operations == {"negotiate", "listRecords", "applyChanges", "adjustEndpoints"}
