"""Generates files from others: structs and a test client from OpenAPI, pages and schemas from classes, dashboards.

    python -m tools.generate            write the files
    python -m tools.generate --check    write nothing; print a diff and exit 1 if a committed file differs

`dnswebhook/openapi/webhook.yaml` gives msgspec structs, in `dnswebhook/openapi/generated/`, and
`tests/support/webhook_client.py` with one method for each operation. `docs/options.md` is made from the Options class
of each daemon, `docs/proxy-document.schema.json` from the structs of `proxy/document`, and
`docs/proxy-document-fields.md` from that schema. `docs/gateway-api-coverage.md` shows which golden case covers what; a
row without a case is an error. Dashboards for Grafana are made from `tools/dashboards` and from the alerts. Equal input
gives equal bytes: no times, no absolute paths, code formatted by ruff.
"""

import argparse
import difflib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from datamodel_code_generator import InputFileType, generate
from datamodel_code_generator.enums import DataModelType
from datamodel_code_generator.format import Formatter, PythonVersion

from daemonkit.options import reference_page
from dnswebhook import options as dnswebhook_options
from proxy import options as proxy_options
from proxy.commands.schema import make_schema
from tools.coveragepage import Gap, make_coverage_page
from tools.dashboards import make_dashboards
from tools.fieldpage import make_field_page
from tunnelgw import options as tunnelgw_options

ROOT = Path(__file__).resolve().parent.parent
OPENAPI = ROOT / "dnswebhook" / "openapi"
STRUCTS = OPENAPI / "generated"
WEBHOOK = OPENAPI / "webhook.yaml"
CLIENT = ROOT / "tests" / "support" / "webhook_client.py"
OPTIONS_PAGE = ROOT / "docs" / "options.md"
DOCUMENT_SCHEMA = ROOT / "docs" / "proxy-document.schema.json"
DOCUMENT_FIELDS = ROOT / "docs" / "proxy-document-fields.md"
COVERAGE_PAGE = ROOT / "docs" / "gateway-api-coverage.md"

STRUCTS_DOCSTRING = '"""Structs of openapi/{name}; made by tools/generate.py, do not edit."""\n'
PACKAGE_DOCSTRING = '"""What tools/generate.py makes of the OpenAPI files beside this package; do not edit."""\n'


def main() -> int:
    parser = argparse.ArgumentParser(description="Make what follows from other files.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a committed file differs")
    arguments = parser.parse_args()
    try:
        made = make_all()
    except Gap as gap:
        sys.stderr.write(f"{gap}\n")
        return 1
    return check(made) if arguments.check else write(made)


def make_all() -> dict[Path, str]:
    """The text of each generated file."""
    made = {
        STRUCTS / "__init__.py": PACKAGE_DOCSTRING,
        STRUCTS / "webhook.py": make_structs(WEBHOOK),
        CLIENT: make_client(WEBHOOK),
    }
    code = {path: formatted(text) for path, text in made.items()}
    schema = make_schema()
    pages = {
        OPTIONS_PAGE: make_options_page(),
        DOCUMENT_SCHEMA: schema,
        DOCUMENT_FIELDS: make_field_page(schema),
        COVERAGE_PAGE: make_coverage_page(ROOT),
    }
    return {**code, **pages, **make_dashboards(ROOT)}


def write(made: dict[Path, str]) -> int:
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


def check(made: dict[Path, str]) -> int:
    differs = False
    for path, wanted in made.items():
        seen = path.read_text(encoding="utf-8") if path.exists() else ""
        name = str(path.relative_to(ROOT))
        diff = difflib.unified_diff(
            seen.splitlines(keepends=True), wanted.splitlines(keepends=True), f"{name} (committed)", f"{name} (made)"
        )
        for line in diff:
            differs = True
            sys.stdout.write(line)
    if differs:
        sys.stderr.write(
            "generated files differ from what they are made from: run `make generate` and commit the result\n"
        )
    return int(differs)


def formatted(text: str) -> str:
    """`text` as formatted by our ruff."""
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def make_structs(source: Path) -> str:
    """msgspec structs for all schemas in `source`."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "structs.py"
        generate(
            source,
            input_file_type=InputFileType.OpenAPI,
            output=output,
            output_model_type=DataModelType.MsgspecStruct,
            target_python_version=PythonVersion.PY_311,
            custom_file_header=STRUCTS_DOCSTRING.format(name=source.name),
            extra_template_data={"#all#": {"base_class_kwargs": {"frozen": True}}},  # type: ignore[arg-type]
            snake_case_field=True,
            strict_nullable=True,
            keyword_only=True,
            use_schema_description=True,
            disable_future_imports=True,
            formatters=[Formatter.BUILTIN],
        )
        return output.read_text(encoding="utf-8")


def make_options_page() -> str:
    """The page of all options of all daemons."""
    pages = [
        reference_page(daemon.Options, prog=daemon.PROG, prefix=daemon.PREFIX, description=daemon.DESCRIPTION).rstrip()
        for daemon in (dnswebhook_options, proxy_options, tunnelgw_options)
    ]
    text = "\n\n".join(pages)
    return f"<!-- Made by `make generate` from the declarations; do not edit. -->\n\n{text}\n"


CLIENT_HEAD = '''"""A client of the daemon's APIs with one method per operation; made by tools/generate.py, do not edit.

A method sends exactly what it is given and reads no meaning into the answer: `Answer.value()` decodes a body of the
kind that the operation promises for success, `Answer.problem()` an error body. `accept=None` sends no Accept header.
"""

from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, cast

import msgspec
import requests

from dnswebhook.openapi.generated import webhook

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What came back: the raw parts, and how to decode them."""

    status_code: int
    headers: requests.structures.CaseInsensitiveDict[str]
    body: bytes
    kind: Any

    def value(self) -> T:
        return cast(T, msgspec.json.decode(self.body, type=self.kind))

    def problem(self) -> webhook.Error:
        return msgspec.json.decode(self.body, type=webhook.Error)


class _Client:
    def __init__(self, base_url: str, timeout_s: float = 30.0) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self, method: str, path: str, kind: Any, accept: str | None, content_type: str | None = None, body: Any = None
    ) -> Answer[Any]:
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        response = self._session.request(
            method,
            self._base_url + path,
            data=data,
            headers={"Accept": accept, "Content-Type": content_type},
            timeout=self._timeout_s,
            allow_redirects=False,
        )
        return Answer(response.status_code, response.headers, response.content, kind)
'''

CLASS = '''

class {title}Client(_Client):
    """The API of openapi/{name}."""
'''

METHOD = '''
    def {name}(self{body_parameter}, *, accept: str | None = {accept!r}{content_parameter}) -> Answer[{kind}]:
        """{summary}."""
        return self._call({verb!r}, {path!r}, {kind}, accept{body_arguments})
'''


def make_client(source: Path) -> str:
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    parts = [
        CLIENT_HEAD,
        CLASS.format(title=document["info"]["title"], name=source.name),
        *(make_method(*operation) for operation in operations(document)),
    ]
    return "".join(parts)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for verb, operation in methods.items():
            yield path, verb.upper(), operation


def make_method(path: str, verb: str, operation: dict[str, Any]) -> str:
    success = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
    content = success.get("content", {})
    sent = operation.get("requestBody", {}).get("content", {})
    return METHOD.format(
        name=snake_case(operation["operationId"]),
        summary=operation["summary"],
        verb=verb,
        path=path,
        kind=python_type(content),
        accept=next(iter(content), None),
        body_parameter=f", body: {python_type(sent)} | bytes" if sent else "",
        content_parameter=f", content_type: str | None = {next(iter(sent))!r}" if sent else "",
        body_arguments=", content_type, body" if sent else "",
    )


def python_type(content: dict[str, Any]) -> str:
    """The type of a body, whatever its media type; `None` if there is no body."""
    kinds = [schema_type(media["schema"]) for media in content.values()]
    return " | ".join(dict.fromkeys(kinds)) or "None"


def schema_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"webhook.{schema['$ref'].rpartition('/')[2]}"
    raise ValueError(f"a body schema that is no $ref: {schema}")


def snake_case(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


if __name__ == "__main__":
    sys.exit(main())
