"""Parses a YAML or JSON file into its documents, each with the line of every place in it."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from tunnelgw.sources.directory.scalars import READERS, Readable
from tunnelgw.sources.directory.schema.shapes import Place

if TYPE_CHECKING or yaml.__with_libyaml__:
    from yaml import CSafeLoader as SafeLoader
else:  # slower, stricter in some points, and with other error messages
    from yaml import SafeLoader

MOST_BYTES: Final = 4 * 1024 * 1024
"""The limit for a file, enough for 20,000 small routes. Reading it may take a hundred times as much memory."""
_MOST_VALUES: Final = 1_000_000
"""The limit of values with aliases expanded, a hundred times the size of the largest route that the API accepts."""
_DEEPEST: Final = 1000
"""The limit of nesting. Each level takes at least one byte, so shorter files are not checked."""
_SURROGATES: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # no backslash escapes it
)
"""A surrogate pair, with which JSON may write one character, but YAML may not."""
_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_HALF: Final = re.compile("[\ud800-\udfff]")


class BrokenFile(Exception):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


class Document(NamedTuple):
    data: Any
    line_of: Callable[[Place], int]
    """The line of a place, counted from 1; for a missing place, the line of its parent."""


class _Loader(SafeLoader):
    """Reads YAML as the API server does: keys are unique strings; timestamps and `=` are strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        # A tag can make anything claim to be a mapping; what is not one is refused below.
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise BrokenFile(key.start_mark.line + 1, "a key is not a string; write it in quotes")
            if key.value in seen:
                raise BrokenFile(key.start_mark.line + 1, f"key {key.value!r} occurs twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        value: str = super().construct_scalar(node)
        # libyaml refuses such escapes; PyYAML turns them into a string that cannot be encoded.
        if not value.isascii() and _HALF.search(value):
            raise BrokenFile(node.start_mark.line + 1, "half of a surrogate pair is not a character")
        return value


_TEXTS = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXTS and tag not in READERS]
    for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_beginnings, _read) in READERS.items():
    for _first in _beginnings:
        _Loader.yaml_implicit_resolvers.setdefault(_first, []).append((_tag, Readable(_read)))


def _checked(construct: Callable[[Any, yaml.Node], Any]) -> Callable[[Any, yaml.Node], Any]:
    """PyYAML trusts a tag about the type of a value, and raises Python's own errors if the tag is wrong."""

    def checked(loader: Any, node: yaml.Node) -> Any:
        try:
            return construct(loader, node)
        except (ValueError, LookupError, ArithmeticError, AttributeError) as error:
            line, kind = node.start_mark.line + 1, node.tag.rpartition(":")[2]
            raise BrokenFile(line, f"a value cannot be read as {kind}; write texts in quotes") from error

    return checked


def _reading(read: Callable[[str], Any]) -> Callable[[Any, yaml.Node], Any]:
    return lambda loader, node: read(loader.construct_scalar(node))


for _tag, (_, _read) in READERS.items():
    _Loader.add_constructor(_tag, _checked(_reading(_read)))
_TIME = "tag:yaml.org,2002:timestamp"
_Loader.add_constructor(_TIME, _checked(_Loader.yaml_constructors[_TIME]))


_NAMED_BY_PYYAML = re.compile(r"(found undefined (?:alias|tag handle)) .*", re.DOTALL)
"""PyYAML quotes the name, which may be a password that begins with `*` or `!`; libyaml does not."""


def _refuse_tag(_loader: Any, node: yaml.Node) -> Any:
    # The tag is not quoted: it may be the beginning of a password.
    raise BrokenFile(node.start_mark.line + 1, "an unknown tag; write a text that begins with `!` in quotes")


_Loader.add_constructor(None, _refuse_tag)


def documents(octets: bytes) -> list[Document]:
    """The documents that are not empty; for a `List`, its items. Raises BrokenFile."""
    if len(octets) > MOST_BYTES:
        raise BrokenFile(1, f"has more than {MOST_BYTES >> 20} MiB; split it")
    if octets.lstrip().startswith(b"{"):
        octets = _SURROGATES.sub(_plain, octets)
    try:
        return [each for document in _loaded(octets) for each in _flat(document)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # At the beginning of a line libyaml's message is different, and does not mention the tab.
        is_tab = (error.problem or "").startswith("found character") and _character_at(octets, mark) == "\t"
        said = _NAMED_BY_PYYAML.sub(r"\1", error.problem or "not YAML")
        if "nesting depth" in said:  # a limit of its own, from PyYAML 6.0.4 on
            said = "nests too deeply"
        problem = "a tab, where YAML wants spaces" if is_tab else said
        raise BrokenFile(mark.line + 1 if mark else 1, problem) from error
    except yaml.reader.ReaderError as error:
        hint = "" if _is_utf_8(octets) else "; save it as UTF-8"
        raise BrokenFile(octets.count(b"\n", 0, error.position) + 1, f"not YAML: {error.reason}{hint}") from error
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, ArithmeticError) as error:
        # Without libyaml, PyYAML raises Python's own errors for invalid characters and versions.
        raise BrokenFile(1, f"not YAML: {str(error)[:200]}") from error


def _is_utf_8(octets: bytes) -> bool:
    """UTF-16 without a byte order mark may look like UTF-8 with a NUL beside each character."""
    try:
        return "\0" not in octets.decode()
    except UnicodeDecodeError:
        return False


def _character_at(octets: bytes, mark: yaml.Mark | None) -> str:
    """The mark counts characters, without the byte order mark, and YAML breaks lines at other characters too."""
    text = octets.decode("utf-8-sig", "replace") if mark else ""
    line = next(iter(_BREAK.split(text)[mark.line :]), "") if mark else ""
    return line[mark.column : mark.column + 1] if mark else ""


def _plain(pair: re.Match[bytes]) -> bytes:
    before, escapes = pair.groups()
    character: str = json.loads(b'"%b"' % escapes)
    return before + character.encode()


def _loaded(octets: bytes) -> Iterator[Document]:
    _check_depth(octets)
    loader = _Loader(octets)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None and b"*" in octets:
                _check_aliases(node)
            data = None if node is None else loader.construct_document(node)
            if node is not None and data is not None:
                yield Document(data, partial(_line, node))
    finally:
        loader.dispose()


def _check_depth(octets: bytes) -> None:
    """Raises BrokenFile if PyYAML would recurse in C until the process runs out of stack and crashes."""
    if len(octets) <= _DEEPEST:
        return
    depth = 0
    for event in yaml.parse(octets, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                mark = event.start_mark
                raise BrokenFile(mark.line + 1 if mark else 1, "nests too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_aliases(root: yaml.Node) -> None:
    """Raises BrokenFile if aliases expand a few lines to more than fits in memory."""
    counts: dict[int, int] = {}

    def count(node: yaml.Node) -> int:
        found = counts.get(id(node))
        if found is None:
            counts[id(node)] = _MOST_VALUES  # in case the node contains itself
            inner = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = (part for item in inner for part in (item if isinstance(item, tuple) else (item,)))
            found = counts[id(node)] = 1 + sum(map(count, parts))
        if found > _MOST_VALUES:
            raise BrokenFile(node.start_mark.line + 1, f"aliases expand this to more than {_MOST_VALUES:,} values")
        return found

    count(root)


def _flat(document: Document) -> Iterator[Document]:
    data = document.data
    if isinstance(data, dict) and data.get("apiVersion") == "v1" and data.get("kind") == "List":
        items = data.get("items") or []
        if not isinstance(items, list):
            raise BrokenFile(document.line_of(("items",)), "items of a List is not a list")
        for number, item in enumerate(items):
            yield Document(item, partial(_line_of_item, document, number))
    else:
        yield document


def _line_of_item(listing: Document, number: int, place: Place) -> int:
    return listing.line_of(("items", number, *place))


def _line(node: yaml.Node, place: Place) -> int:
    line = node.start_mark.line + 1
    for step in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return int(line)
