"""The published JSON Schema accepts what the decoder accepts, and refuses what it refuses for its shape."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from proxy import document

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "proxy-document.schema.json").read_text(encoding="utf-8"))
BACKENDS = [{"address": "127.0.0.1:3000"}]

TAKEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "five lines": {"routes": [{"hostnames": ["a.example"], "backends": BACKENDS}]},
    "listeners and limits": {
        "version": 7,
        "listeners": [{"name": "web", "port": 80, "hostname": "*.example.com"}, {"name": "edge", "tunnel": True}],
        "limits": {"idleTimeout": "1m30s", "maxUriBytes": 4096},
        "forwarding": {"trustedProxies": ["10.0.0.0/8"], "forwarded": True},
    },
    "a rule with all kinds of matches": {
        "backends": [{"name": "app", "addresses": ["[::1]:80", "app.test:80"], "protocol": "h2c"}],
        "routes": [
            {
                "name": "ns/a",
                "rules": [
                    {
                        "matches": [
                            {
                                "path": {"type": "RegularExpression", "value": "/v[0-9]+/.*"},
                                "method": "GET",
                                "headers": [{"name": "X-A", "value": "1"}],
                                "queryParams": [{"name": "q", "value": "[a-z]+", "type": "RegularExpression"}],
                            }
                        ],
                        "backends": [{"backend": "app", "weight": 3}, {"respond": {"statusCode": 500}, "weight": 1}],
                        "timeouts": {"request": "10s", "backendRequest": "500ms"},
                        "retry": {"attempts": 2, "codes": [502, 503]},
                    }
                ],
            }
        ],
    },
    "a field name of all that RFC 9110 has for them": {"forwarding": {"requestIdHeader": "!#$%&'*+-.^_`|~0aZ"}},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"route": []}, "route"),
    "null": ({"listeners": None}, "listeners"),
    "a number for a name": ({"listeners": [{"name": 1, "port": 80}]}, "listeners[0].name"),
    "a name that is missing": ({"listeners": [{"port": 80}]}, "listeners[0]"),
    "a port beyond 65535": ({"listeners": [{"name": "a", "port": 65536}]}, "listeners[0].port"),
    "a hostname in capitals": (
        {"routes": [{"hostnames": ["A.example"], "backends": BACKENDS}]},
        "routes[0].hostnames[0]",
    ),
    "a hostname with a line break": (
        {"routes": [{"hostnames": ["a.example\n"], "backends": BACKENDS}]},
        "routes[0].hostnames[0]",
    ),
    "a duration without a unit": ({"limits": {"idleTimeout": "30"}}, "limits.idleTimeout"),
    "an unknown protocol": ({"backends": [{"name": "a", "protocol": "ftp"}]}, "backends[0].protocol"),
    "a weight below 0": ({"routes": [{"backends": [{**BACKENDS[0], "weight": -1}]}]}, "routes[0].backends[0].weight"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_decoder_accepts_fits_the_schema(name: str) -> None:
    document.decode(json.dumps(TAKEN[name]).encode())

    Draft202012Validator(SCHEMA).validate(TAKEN[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_decoder_refuses_for_its_shape_does_not_fit_the_schema(name: str) -> None:
    refused, path = REFUSED[name]

    with pytest.raises(document.DocumentError) as caught:
        document.decode(json.dumps(refused).encode())

    assert [path] == [problem.path for problem in caught.value.problems]
    assert not Draft202012Validator(SCHEMA).is_valid(refused)


def test_the_schema_is_valid_and_describes_each_definition_and_each_limit() -> None:
    Draft202012Validator.check_schema(SCHEMA)

    assert all(part.get("description") for part in SCHEMA["$defs"].values())
    limits = SCHEMA["$defs"]["Limits"]["properties"]
    assert all(limits[name].get("description") for name in limits)
