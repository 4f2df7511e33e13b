"""No test passes over a bug of the proxy."""

from tests.proxy.errors import no_errors, with_an_error

__all__ = ["no_errors", "with_an_error"]
