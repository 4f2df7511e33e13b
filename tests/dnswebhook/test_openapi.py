"""The OpenAPI files are valid, say what the code says, and the generated code follows from them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from openapi_schema_validator import OAS30ReadValidator
from openapi_spec_validator import validate

import dnswebhook.openapi
from dnswebhook.mediatypes import MEDIA_TYPE, PLAIN_MEDIA_TYPE

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(dnswebhook.openapi.__file__).parent.glob("*.yaml"))


def load(name: str) -> Any:
    return yaml.safe_load((Path(dnswebhook.openapi.__file__).parent / name).read_text(encoding="utf-8"))


def test_both_apis_are_described() -> None:
    assert [path.name for path in FILES] == ["health.yaml", "webhook.yaml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_file_is_valid_openapi(path: Path) -> None:
    validate(load(path.name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_fits_its_schema(path: Path) -> None:
    document = load(path.name)
    for schema, example in examples(document):
        OAS30ReadValidator({**schema, "components": document["components"]}).validate(example)


def test_the_paths_are_those_that_external_dns_calls() -> None:
    operations = {(verb, path) for path, methods in load("webhook.yaml")["paths"].items() for verb in methods}

    assert operations == {("get", "/"), ("get", "/records"), ("post", "/records"), ("post", "/adjustendpoints")}


def test_every_body_is_described_in_our_media_types_only() -> None:
    seen = {media for content in find(load("webhook.yaml"), "content") for media in content}

    assert seen == {MEDIA_TYPE, PLAIN_MEDIA_TYPE}


def test_the_committed_code_matches_the_output_of_the_generator() -> None:
    command = [sys.executable, "-m", "tools.generate", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert check.returncode == 0, check.stdout + check.stderr


def find(node: Any, key: str) -> list[Any]:
    """Every value of `key` anywhere in a document."""
    if isinstance(node, list):
        return [found for item in node for found in find(item, key)]
    if isinstance(node, dict):
        inner = [found for item in node.values() for found in find(item, key)]
        return inner + ([node[key]] if key in node else [])
    return []


def examples(document: Any) -> list[tuple[Any, Any]]:
    """Schema and example of every body that has one."""
    media = [kind for content in find(document, "content") for kind in content.values()]
    return [(kind["schema"], kind["example"]) for kind in media if "example" in kind]
