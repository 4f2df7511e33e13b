"""Makes the page that shows which golden case covers which row of what Gateway API requires of a controller.

`tests/tunnelgw/golden/rows.yaml` has the rows; each case in `tests/tunnelgw/golden/*/` names the rows that it covers. A
row that no case covers, a row that does not exist, and a test that does not exist are errors: `Gap`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import yaml

_INTRODUCTION = """\
<!-- Made by `make generate` from tests/tunnelgw/golden; do not edit. -->

# Gateway API coverage

What [Gateway API](https://gateway-api.sigs.k8s.io) v1.6 and v1.7 require of a controller, row by row, with the tests of
each: look here for what exactly happens in a certain case. [gateway-api.md](gateway-api.md) says what is supported, in
sentences, and has examples to copy.

A test is usually a golden case, which is a file: objects as input, and the expected statuses, proxy document and
results of requests; objects and conditions that it does not mention have to be those of a healthy object. Conditions
are written `type status / reason`, such as `Accepted False / InvalidParameters`. A row that is *not used* says why.
Rows of *Faults seen in other implementations* name faults that the tests rule out.

"""


class Gap(Exception):
    """Rows and cases do not match."""


class Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    title: str
    unused: str = ""
    test: str = ""
    """`path` or `path::name`, relative to the repository's root."""


class Section(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    title: str
    rows: dict[str, str | Row] = {}
    names: tuple[str, ...] = ()
    """Rows whose title is their name."""

    def all_rows(self) -> Iterator[tuple[str, Row]]:
        for name, row in self.rows.items():
            yield name, Row(row) if isinstance(row, str) else row
        for name in self.names:
            yield name, Row(name)


def make_coverage_page(root: Path) -> str:
    """Raises Gap with all problems."""
    golden = root / "tests" / "tunnelgw" / "golden"
    sections = msgspec.yaml.decode((golden / "rows.yaml").read_bytes(), type=dict[str, Section])
    cases = cases_by_row(golden)
    if problems := [*_problems(sections, cases, root)]:
        raise Gap("\n".join(problems))
    contents = " ·\n".join(f"[{section.title}](#{_anchor(section.title)})" for section in sections.values())
    tables = "".join(_section(key, section, cases) for key, section in sections.items())
    return f"{_INTRODUCTION}{contents}\n{tables}"


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def cases_by_row(golden: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(golden.glob("*/*.yaml")):
        for anchor in yaml.safe_load(path.read_text(encoding="utf-8"))["rows"]:
            found[anchor].append(path)
    return dict(found)


def _problems(sections: Mapping[str, Section], cases: Mapping[str, list[Path]], root: Path) -> Iterator[str]:
    known = {f"{key}/{name}": row for key, section in sections.items() for name, row in section.all_rows()}
    for anchor, row in known.items():
        if row.test and not _exists(root, row.test):
            yield f"rows.yaml: {anchor}: there is no test {row.test}"
        if row.unused and anchor in cases:
            yield f"{cases[anchor][0].name}: {anchor} is said to be unused in rows.yaml, but here is a case of it"
        if not (row.unused or row.test or anchor in cases):
            yield f"rows.yaml: {anchor}: no golden case covers it ({row.title})"
    for anchor in cases.keys() - known.keys():
        yield f"{cases[anchor][0].name}: {anchor} is not in rows.yaml"


def _exists(root: Path, test: str) -> bool:
    path, _, name = test.partition("::")
    return (root / path).is_file() and f"def {name}" in (root / path).read_text(encoding="utf-8")


def _section(key: str, section: Section, cases: Mapping[str, list[Path]]) -> str:
    lines = [f"\n## {section.title}\n", "| row | requirement | tests |", "|---|---|---|"]
    for name, row in section.all_rows():
        answers = [_case(path) for path in cases.get(f"{key}/{name}", ())]
        if row.test:
            answers.append(f"[{row.test.rpartition('/')[2]}](../{row.test.partition('::')[0]})")
        requirement = "" if row.title == name else row.title
        lines.append(f"| {key}/{name} | {requirement} | {', '.join(answers) or f'not used: {row.unused}'} |")
    return "\n".join(lines) + "\n"


def _case(path: Path) -> str:
    return f"[{path.stem.replace('-', ' ')}](../tests/tunnelgw/golden/{path.parent.name}/{path.name})"
