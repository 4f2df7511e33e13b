"""The error that reading a message can raise."""


class MalformedMessage(ValueError):
    """The bytes are not a Cap'n Proto message, or the message exceeds a limit or has an unexpected shape."""
