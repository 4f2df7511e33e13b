"""Where a document comes from: a file, standard input, or a running proxy."""

import http.client
import ssl
import sys
from collections.abc import Mapping
from typing import Final

from daemonkit.clienttls import distrust_hint, scheme_hint, trusting
from daemonkit.filereading import read_input, shown_name
from daemonkit.optionsources import read_values
from daemonkit.optionspec import specs_of
from daemonkit.secret import Secret
from daemonkit.timedresponse import response_within
from daemonkit.unixhttp import UnixHTTPConnection
from daemonkit.urls import lacks_interface, split_url
from daemonkit.values import shown_path
from proxy.options import PREFIX, Options
from proxy.supervisor.state import MAX_DOCUMENT_BYTES

_TIMEOUT_S: Final = 10.0
_ANSWER_S: Final = 40.0
"""For the whole answer, as for the controller."""
_MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""As for the controller: more than `--max-document` is by default."""


class SourceError(Exception):
    """The document is unavailable or unusable, or the request makes no sense; the text says why."""


def read_file(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return read_input(name, MAX_DOCUMENT_BYTES)
    except OSError as error:
        raise SourceError(f"cannot read {shown_path(shown_name(name))}: {error.strerror}") from error


def read_token(file: str | None, environ: Mapping[str, str]) -> Secret | None:
    """The config API's token, from a file or else from the same variables as for `run`."""
    specs = [spec for spec in specs_of(Options, PREFIX) if spec.field == "auth_token"]
    values, problems = read_values(specs, {"auth_token": [file]} if file is not None else {}, environ)
    if problems:
        raise SourceError("; ".join(problem.text for problem in problems))
    token: Secret | None = values.get("auth_token")
    if token is not None and not token.fits_header():
        raise SourceError(f"the proxy's token, from {token.path or specs[0].env}, is not one line of printable ASCII")
    return token


def read_running(address: str, token: Secret | None, ca_file: str | None) -> bytes:
    """The document of a running proxy, with private keys redacted. `ca_file`: CAs to trust (PEM), else the system's."""
    connection = _connection(address, ca_file)
    connection.response_class = response_within(_ANSWER_S)
    headers = {"Authorization": f"Bearer {token.reveal()}"} if token else {}
    try:
        connection.request("GET", "/config", headers=headers)
        response = connection.getresponse()
        # With a size, no memory is taken for a length that the answer only claims.
        body = response.read(_MAX_ANSWER_BYTES + 1)
        if len(body) > _MAX_ANSWER_BYTES:
            raise SourceError(f"the answer of the proxy at {address} is longer than {_MAX_ANSWER_BYTES} bytes")
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
    except ssl.SSLCertVerificationError as error:
        raise SourceError(
            f"cannot ask the proxy at {address}: {error.verify_message}{distrust_hint(error, '--ca-file')}"
        ) from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: no DNS name has such a label
        raise SourceError(f"cannot ask the proxy at {address}: {error}{scheme_hint(error)}") from error
    finally:
        connection.close()
    if response.status == 401:
        seen = "refused the token, want the one that it was started with" if token else "requires its token"
        raise SourceError(
            f"the proxy at {address} {seen}: --auth-token-file, PROXY_AUTH_TOKEN or PROXY_AUTH_TOKEN_FILE"
        )
    if response.status != 200:
        raise SourceError(f"the proxy at {address} answered {response.status}: {body[:500].decode(errors='replace')}")
    return body


def _connection(address: str, ca_file: str | None) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return UnixHTTPConnection(address.removeprefix("unix:"), _TIMEOUT_S)
    if "@" in address:  # not repeated: it may contain a password
        raise SourceError("--proxy: seen a URL with credentials in it, want the token with --auth-token-file")
    try:
        parts = split_url(address)
        port = parts.port
        if lacks_interface(parts.hostname or ""):
            raise ValueError(f"want the interface of a link-local address too, as in [{parts.hostname}%eth0]")
        if port is None:  # http.client would look for it in an IPv6 address
            port = http.client.HTTPS_PORT if parts.scheme == "https" else http.client.HTTP_PORT
        if parts.scheme == "http" and parts.hostname:
            return http.client.HTTPConnection(parts.hostname, port, timeout=_TIMEOUT_S)
        if parts.scheme == "https" and parts.hostname:
            return http.client.HTTPSConnection(parts.hostname, port, timeout=_TIMEOUT_S, context=_tls_context(ca_file))
    except (ValueError, http.client.InvalidURL) as error:  # InvalidURL is no ValueError
        raise SourceError(f"seen {address!r}: {error}") from error
    raise SourceError(f"seen {address!r}, want a URL such as http://127.0.0.1:8082, or unix:/path")


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        return trusting(ca_file)
    except OSError as error:  # includes ssl.SSLError, if the file holds no certificate
        raise SourceError(f"--ca-file: cannot use {ca_file!r}: {error.strerror or error}") from error
