"""What tests ask about the headers of a message."""

from __future__ import annotations

from collections.abc import Sequence


class HeaderList:
    headers: Sequence[tuple[str, str]]
    """Names in lower case."""

    def values(self, name: str) -> list[str]:
        return [value for field, value in self.headers if field == name]

    def value(self, name: str) -> str | None:
        """The value of a field that was sent once, or None; fails if it was sent more often."""
        values = self.values(name)
        assert len(values) <= 1, f"{name} was sent {len(values)} times: {values}"
        return values[0] if values else None
