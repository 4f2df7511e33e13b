"""What workers should serve: a document and the sockets of its doors."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.document import Content, handover


@dataclass(frozen=True, eq=False)
class Deployment:
    generation: int
    """Rises with every deployment, whereas the same version may be deployed again."""
    version: int
    content: Content
    sockets: Mapping[str, tuple[socket.socket, ...]]
    """By door; one listening socket for each worker."""

    def since(self, before: "Deployment | None") -> bytes:
        """What to send to a worker that serves `before`. Not cached: it is a copy of the document, and made in
        milliseconds."""
        return handover.pack(None if before is None else before.content, self.content)
