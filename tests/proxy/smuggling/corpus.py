"""The corpus of ambiguous requests, decoded: `corpus.yaml` beside this file says what each case means.

`load` is for every test that sends the cases somewhere: to the codec alone, or through a running proxy.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CORPUS = Path(__file__).with_name("corpus.yaml")


@dataclass(frozen=True)
class Forwarded:
    """A request as a backend must read it. `is_cut`: its body never ends, since the client was refused."""

    method: bytes
    path: bytes
    host: bytes
    body: bytes = b""
    fields: dict[bytes, bytes] = field(default_factory=dict)
    absent: frozenset[bytes] = frozenset()
    is_cut: bool = False


@dataclass(frozen=True)
class Case:
    """`rejected` is the status code that ends the connection, None where it goes on."""

    name: str
    source: str
    raw: bytes
    forwarded: tuple[Forwarded, ...]
    rejected: int | None


@cache
def load() -> tuple[Case, ...]:
    return tuple(_case(entry) for entry in yaml.safe_load(CORPUS.read_text(encoding="utf-8")))


def _case(entry: dict[str, Any]) -> Case:
    unknown = entry.keys() - {"name", "source", "raw", "forwarded", "rejected"}
    assert not unknown, f"{entry['name']}: unknown keys {unknown}"
    return Case(
        name=entry["name"],
        source=entry["source"],
        raw=entry["raw"].encode("latin-1"),
        forwarded=tuple(_forwarded(request) for request in entry.get("forwarded", ())),
        rejected=entry.get("rejected"),
    )


def _forwarded(request: dict[str, Any]) -> Forwarded:
    return Forwarded(
        method=request["method"].encode(),
        path=request["path"].encode(),
        host=request["host"].encode(),
        body=request.get("body", "").encode("latin-1"),
        fields={name.encode(): value.encode("latin-1") for name, value in request.get("fields", {}).items()},
        absent=frozenset(name.encode() for name in request.get("absent", ())),
        is_cut=request.get("is_cut", False),
    )
