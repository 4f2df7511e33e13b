"""What every daemon of this distribution shares: options, logs, lifecycle, a WSGI server, the ops app."""

__version__ = "0.1.0"
