"""What workers should serve: a document and the sockets of its doors."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.document import Content, handover


@dataclass(frozen=True, eq=False)
class Deployment:
    generation: int
    """Rises with every deployment, whereas the same version may be deployed again."""
    version: int
    content: Content
    sockets: Mapping[str, tuple[socket.socket, ...]]
    """By door; one listening socket for each worker."""
    _packed: dict[int, bytes] = field(default_factory=dict)

    def since(self, before: "Deployment | None") -> bytes:
        """What to send to a worker that serves `before`. Cached, since workers usually serve the same deployment."""
        generation = 0 if before is None else before.generation
        packed = self._packed.get(generation)
        if packed is None:
            packed = handover.pack(None if before is None else before.content, self.content)
            self._packed[generation] = packed
        return packed

    def forget_packed(self) -> None:
        """Clear the cache, after all workers were sent the deployment."""
        self._packed.clear()
