"""The JSON Schema of the document that `PUT /config` accepts, with a description of each field.

msgspec provides types, bounds and class docstrings. The strings under fields, which describe them, do not exist at run
time and are read from the source.
"""

import ast
import inspect
import itertools
import json
import textwrap
from typing import Any

import msgspec

from proxy.document import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_schema() -> str:
    (root,), parts = msgspec.json.schema_components([Document], ref_template="#/$defs/{name}")
    structs = {struct.__name__: struct for struct in _parts_of(Document)}
    for name, schema in parts.items():
        _describe(schema, structs[name])
    return json.dumps({"$schema": DIALECT, **root, "$defs": dict(sorted(parts.items()))}, indent=2) + "\n"


def _parts_of(struct: type) -> list[type]:
    """`struct` and every struct that its fields can hold."""
    found = [struct]
    for known in found:
        info = msgspec.inspect.type_info(known)
        found += [part for part in _structs_in(info) if part not in found]
    return found


def _structs_in(info: Any) -> list[type]:
    """The structs that a type refers to directly, inside any containers and unions."""
    structs: list[type] = []
    waiting = [field.type for field in info.fields]
    while waiting:
        match waiting.pop():
            case msgspec.inspect.StructType(cls=cls):
                structs.append(cls)
            case msgspec.inspect.UnionType(types=types):
                waiting += types
            case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.Metadata(type=item):
                waiting.append(item)
            case msgspec.inspect.DictType(key_type=key, value_type=value):
                waiting += [key, value]
            case _:
                pass
    return list(dict.fromkeys(structs))


def _describe(schema: dict[str, Any], struct: type) -> None:
    if "description" in schema:
        # Python 3.13 and later do this themselves.
        schema["description"] = inspect.cleandoc(schema["description"])
    texts = _field_texts(struct)
    for field in msgspec.structs.fields(struct):
        text = texts.get(field.name)
        if text:
            described = schema["properties"][field.encode_name]
            described["description"] = " ".join(filter(None, (text, described.get("description"))))


def _field_texts(struct: type) -> dict[str, str]:
    """The string under each field of `struct` and its base classes."""
    texts: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if cls.__module__.startswith("proxy."):
            for definition in ast.parse(textwrap.dedent(inspect.getsource(cls))).body:
                if isinstance(definition, ast.ClassDef):
                    texts |= _texts_under_fields(definition)
    return texts


def _texts_under_fields(definition: ast.ClassDef) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, behind in itertools.pairwise(definition.body):
        match statement, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split())
    return texts
