"""The loaded document, and what was found when it was loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.document import Content

if TYPE_CHECKING:
    from proxy.tls.validity import Validity


@dataclass(frozen=True, eq=False)
class Loaded:
    content: Content
    version: int
    loaded_at_s: float
    """Unix time."""
    certificates: "Mapping[str, Validity]"
    """By listener name, the validity of the certificate that expires first."""
