"""What workers are to serve: a document and the sockets of its doors."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Deployment:
    generation: int
    """Rises with every deployment, while a version may be deployed twice."""
    version: int
    content: int
    """Descriptor of the memory file with the document."""
    sockets: Mapping[str, tuple[socket.socket, ...]]
    """By door; one listening socket for each worker."""
