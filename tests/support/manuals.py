"""The pages of docs/ about each daemon: a manual consists of a guide and further pages."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.process import REPOSITORY

DOCS = REPOSITORY / "docs"
_PARTS = ("records", "reference", "troubleshooting", "migration")


def pages_of(daemon: str) -> Iterator[Path]:
    """The guide comes first."""
    yield DOCS / f"{daemon}.md"
    for part in _PARTS:
        page = DOCS / f"{daemon}-{part}.md"
        if page.exists():
            yield page


def manual_of(daemon: str) -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in pages_of(daemon))
