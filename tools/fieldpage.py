"""Makes the page of all fields of the proxy's document from its JSON Schema: `docs/proxy-document-fields.md`.

It has a section for each kind of object, in the order in which the document leads to them, with a row for each field.
The schema already has what the sources say about a field as its description.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

HEAD = """<!-- Made by `make generate` from the JSON Schema; do not edit. -->

# Fields of the proxy's document

Every object of the document with all of its fields. [proxy-document.md](proxy-document.md) explains how they work
together. An absent field says "not wanted"; `null` and unknown fields are refused. A duration is written `500ms`, `30s`
or `1m30s`, and `0s` turns a timeout off. A weight or count is a whole number.
"""

_DURATION_PATTERN = "(h|m|s|ms)"
_REPEATED = re.compile(r"Duration such as 500ms, 30s or 1m30s(; 0s turns the timeout off)?\.")
"""Said once, at the top of the page."""
_REF = "#/$defs/"

Schema = dict[str, Any]


def make_field_page(schema_text: str) -> str:
    schema = json.loads(schema_text)
    objects: dict[str, Schema] = schema["$defs"]
    names = _in_order(schema["$ref"].removeprefix(_REF), objects)
    return HEAD + "".join(_section(name, objects[name]) for name in names)


def _in_order(root: str, objects: dict[str, Schema]) -> list[str]:
    """The objects, each after the one that first leads to it."""
    found = [root]
    for name in found:
        for field in objects[name]["properties"].values():
            found += [other for other in _references(field) if other not in found]
    return found


def _references(schema: Schema) -> Iterator[str]:
    if "$ref" in schema:
        yield schema["$ref"].removeprefix(_REF)
    for part in (schema.get("items"), *schema.get("anyOf", ())):
        if part:
            yield from _references(part)


def _section(name: str, schema: Schema) -> str:
    paragraphs = schema.get("description", "").split("\n\n")
    text = "\n\n".join(_as_code(paragraph) for paragraph in paragraphs)
    rows = [
        f"| `{field}` | {_type(part)} | {_default(part, field in schema['required'])} | {_meaning(part)} |"
        for field, part in schema["properties"].items()
    ]
    table = "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])
    return f"\n## {name}\n\n{text}\n\n{table}\n"


def _as_code(paragraph: str) -> str:
    text = " ".join(paragraph.split())
    return f"`{text}`" if text.startswith("{") else text


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return ", ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    match schema["type"]:
        case "array":
            return f"list of {_type(schema['items'])}{_count(schema)}"
        case "integer":
            return f"{schema['minimum']} to {schema['maximum']}"
        case "boolean":
            return "`true`, `false`"
        case _:
            return "duration" if _is_duration(schema) else "text"


def _count(schema: Schema) -> str:
    if "maxItems" in schema:
        return f"; at most {schema['maxItems']}"
    return "; at least one" if schema.get("minItems") else ""


def _is_duration(schema: Schema) -> bool:
    return _DURATION_PATTERN in schema.get("pattern", "")


def _default(schema: Schema, is_required: bool) -> str:
    if is_required:
        return "**required**"
    if schema.get("default") in (None, "", [], {}):
        return ""
    default = json.dumps(schema["default"])
    return f"`{default.strip(chr(34))}`"


def _meaning(schema: Schema) -> str:
    """The description, for a list followed by that of its entries."""
    texts = [schema.get("description", ""), schema.get("items", {}).get("description", "")]
    shown = " ".join(_REPEATED.sub("", text).strip() for text in texts if text)
    return shown.replace("|", r"\|")
