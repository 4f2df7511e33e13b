"""What reading a message can end with."""


class MalformedMessage(ValueError):
    """The bytes are no Cap'n Proto message, not one that may be read, or not of the expected shape."""
