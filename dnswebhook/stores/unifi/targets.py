"""MX and SRV targets split into their parts, which both APIs keep in separate fields (pure)."""

import msgspec

from dnswebhook.errors import RecordError


class MxTarget(msgspec.Struct, frozen=True):
    preference: int
    host: str

    @property
    def text(self) -> str:
        return f"{self.preference} {self.host}"


class SrvTarget(msgspec.Struct, frozen=True):
    priority: int
    weight: int
    port: int
    host: str
    """Without trailing dot: the controller refuses one."""

    @property
    def text(self) -> str:
        return f"{self.priority} {self.weight} {self.port} {self.host}."


def parse_mx(text: str) -> MxTarget:
    """Raises RecordError; `text` is canonical if it comes from our own plan."""
    words = text.split()
    if len(words) != 2 or not words[0].isdecimal():
        raise RecordError(f"MX target {text[:100]!r}, want `preference host`")
    return MxTarget(int(words[0]), words[1].rstrip("."))


def parse_srv(text: str) -> SrvTarget:
    """Likewise."""
    words = text.split()
    if len(words) != 4 or not all(word.isdecimal() for word in words[:3]):
        raise RecordError(f"SRV target {text[:100]!r}, want `priority weight port host`")
    return SrvTarget(int(words[0]), int(words[1]), int(words[2]), words[3].rstrip("."))
