"""Finds all fields with a wrong type or a value out of range, where the decoder stops at the first.

This slower walk runs only after the decoder has failed: it descends the decoded JSON along the types of the parts, and
lets msgspec convert each piece on its own.
"""

import difflib
import re
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from proxy.document.part import Part
from proxy.document.problems import Findings, excerpt

SECRET_FIELDS = frozenset({"privateKey"})

_WORDS = {
    "`int`": "a whole number",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "an object",
}
"""msgspec's names of the JSON types, and ours."""
_PLACE = re.compile(r" - at `\$\.?(?P<path>.*)`$")


def find_shape_problems(data: object, kind: Any, findings: Findings, path: str = "") -> bool:
    """Add what is wrong with `data` as a value of type `kind`; whether anything was."""
    if findings.is_full:
        return True
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        if not _find_inside(data, kind, findings, path):
            _add(error, data, kind, findings, path)
        return True
    return False


def _find_inside(data: object, kind: Any, findings: Findings, path: str) -> bool:
    struct, item = _struct_of(kind), _item_of(kind)
    if struct and isinstance(data, dict):
        return _find_in_object(data, struct, findings, path)
    if item and isinstance(data, list):
        found = False
        for place, piece in enumerate(data):
            found |= find_shape_problems(piece, item, findings, f"{path}[{place}]")
        return found
    return False


def _find_in_object(data: dict[str, Any], struct: type[Part], findings: Findings, path: str) -> bool:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    found = False
    for name, value in data.items():
        where = f"{path}.{name}" if path else name
        field = fields.get(name)
        if field:
            found |= find_shape_problems(value, field.type, findings, where)
        else:
            findings.add(where[:200], _unknown(name, fields))
            found = True
    for name, field in fields.items():
        if field.required and name not in data:
            findings.add(path, f"field `{name}` is missing")
            found = True
    return found


def _unknown(name: str, fields: dict[str, FieldInfo]) -> str:
    near = difflib.get_close_matches(name, fields, n=1)
    return f"unknown field, did you mean `{near[0]}`?" if near else f"unknown field, known are {', '.join(fields)}"


def _add(error: msgspec.ValidationError, data: object, kind: Any, findings: Findings, path: str) -> None:
    message = str(error)
    place = _PLACE.search(message)
    if place:
        message, inner = message[: place.start()], place["path"]
        path = f"{path}.{inner}" if path and inner and not inner.startswith("[") else path + inner
    is_secret = path.rpartition(".")[2] in SECRET_FIELDS
    message, _, seen = message.replace("Expected ", "want ").partition(", got ")
    for type_name, words in _WORDS.items():
        message = message.replace(type_name, words)
    if not place:
        message = _wanted(message, kind)
        seen = seen if is_secret else excerpt(data)
    if data is None:
        seen = "null; leave the field out instead"
    findings.add(path, f"{message}, seen {seen}" if seen else message)


def _wanted(message: str, kind: Any) -> str:
    """What a value of type `kind` must be: from the type's choices or description, else msgspec's words."""
    choices = [choice for option in _alternatives(kind) if get_origin(option) is Literal for choice in get_args(option)]
    if choices:
        return f"want one of {', '.join(map(str, choices))}"
    for option in _alternatives(kind):
        for meta in getattr(option, "__metadata__", ()):
            if not meta.description:
                continue
            words = f"{meta.description[:1].lower()}{meta.description[1:].rstrip('.')}"
            if "matching regex" in message:
                return f"want {words}"
            if message == f"want {_WORDS['`str`']}":
                return f"{message}: {words}"
    return message


def _alternatives(kind: Any) -> tuple[Any, ...]:
    plain = _plain(kind)
    return get_args(plain) if get_origin(plain) in (Union, UnionType) else (kind,)


def _struct_of(kind: Any) -> type[Part] | None:
    for option in _alternatives(kind):
        if isinstance(option, type) and issubclass(option, Part):
            return option
    return None


def _item_of(kind: Any) -> Any:
    """X if `kind` is, or may be, `tuple[X, ...]`."""
    for option in map(_plain, _alternatives(kind)):
        if get_origin(option) is tuple:
            return get_args(option)[0]
    return None


def _plain(kind: Any) -> Any:
    """`kind` without its `Annotated` limits and descriptions."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return kind
