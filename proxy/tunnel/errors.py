"""What a caller of this package can do wrong. What the edge does wrong has names of its own, and is an event."""


class LocalProtocolError(Exception):
    """Our caller asked for something at the wrong time; nothing was sent."""
