"""Errors of this package's callers. Errors of the edge are reported as events instead."""


class LocalProtocolError(Exception):
    """Our caller asked for something at the wrong time; nothing was sent."""
