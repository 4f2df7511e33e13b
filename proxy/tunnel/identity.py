"""What each connection tells the edge about this program and host when it registers.

All connections of a process tree use one client id for their whole life, because the edge counts connectors by it.
Features are promises: `serialized_headers`, that response fields come in one header (see `responses`), and
`allow_remote_config`, that configuration streams are answered (see `remoteconfig`). Only features that we have are
listed. Pure: ids, system names and addresses are passed in.
"""

import ipaddress
import uuid
from typing import Final

import msgspec

FEATURES: Final = ("allow_remote_config", "serialized_headers")
MAX_ATTEMPTS_SAID: Final = 255
"""The wire field has one byte."""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i686": "386"}


class ClientInfo(msgspec.Struct, frozen=True):
    client_id: bytes
    """16 bytes."""
    features: tuple[str, ...]
    version: str
    arch: str
    """For example linux_amd64."""


class ConnectionOptions(msgspec.Struct, frozen=True):
    client: ClientInfo
    origin_local_ip: bytes = b""
    """16 bytes, IPv4 in mapped form; empty if unknown."""
    replace_existing: bool = False
    compression_quality: int = 0
    previous_attempts: int = 0


def client_info(client_id: uuid.UUID, version: str, system: str, machine: str) -> ClientInfo:
    """`system` and `machine` are as returned by `platform`, for example Linux and x86_64."""
    machine = machine.lower()
    return ClientInfo(client_id.bytes, FEATURES, version, f"{system.lower()}_{_ARCHITECTURES.get(machine, machine)}")


def connection_options(client: ClientInfo, local_address: str, previous_attempts: int) -> ConnectionOptions:
    """`local_address` is the local address of the connection's socket."""
    return ConnectionOptions(
        client, mapped_address(local_address), previous_attempts=min(previous_attempts, MAX_ATTEMPTS_SAID)
    )


def mapped_address(text: str) -> bytes:
    """An address in 16 bytes; empty if `text` is not an address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return b""
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
