"""TLS of the HTTP server: certificate chain and private key from files, which may be renewed while it serves.

A new connection uses the current content of the files. They are usually renewed one after the other, so an unusable
pair is logged once, and the previous one stays in use. A pipe can be read only once, so such a pair is never renewed.
"""

import contextlib
import socket
import ssl
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cheroot import errors
from cheroot.ssl import Adapter

from daemonkit.causes import forget_frames
from daemonkit.filereading import read_input
from daemonkit.logs import Logger
from daemonkit.memoryfile import memory_file
from daemonkit.tlssocket import TlsSocket

_MAX_BYTES: Final = 1024 * 1024

_FileState = tuple[int, int, int]
_PIPE: _FileState = (0, 0, 0)


class UnusablePair(ValueError):
    """TLS is impossible with these files; the text says which one is wrong, and why."""


class Tls(Adapter):
    """Wraps connections at once; handshakes run when bytes arrive. For use by the accepting thread only."""

    def __init__(
        self, certificate: str, private_key: str, log: Logger, on_certificate: Callable[[bytes], None] | None = None
    ) -> None:
        """`on_certificate` is called with each certificate presented from now on, in DER. Raises UnusablePair."""
        super().__init__(certificate, private_key)
        self._log = log
        self._on_certificate = on_certificate
        self._states = self._told = self._look()
        self._use(_context_of(certificate, private_key))

    def bind(self, sock: socket.socket) -> socket.socket:
        return sock

    def wrap(self, sock: socket.socket) -> tuple[socket.socket, dict[str, Any]]:
        self._renew()
        try:
            wrapped = TlsSocket(sock, self.context)
        except OSError as error:
            raise errors.FatalSSLAlert(*error.args) from error
        return wrapped, self.get_environ()

    def get_environ(self) -> dict[str, Any]:
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, _sock: socket.socket, _mode: str = "r", _bufsize: int = -1) -> None:
        """Returns nothing: connections open their own streams."""

    def _renew(self) -> None:
        # Look before reading: changes made meanwhile are seen the next time.
        states = self._look()
        if states == self._states or _PIPE in states:
            # Reading a pipe again would block the accepting thread until somebody writes, for some seconds.
            return
        try:
            context = _context_of(self.certificate, self.private_key)
        except UnusablePair as error:
            if states != self._told:
                self._log.error("cannot renew the certificate, the previous one stays in use", error=error)
            forget_frames(error)  # its frames hold the key and this connection, one also the error
        else:
            self._states = states
            self._log.info("certificate renewed", path=self.certificate)
            self._use(context)
        self._told = states

    def _use(self, context: ssl.SSLContext) -> None:
        self.context = context
        if self._on_certificate is not None:
            self._on_certificate(_presented_by(context))

    def _look(self) -> tuple[_FileState | None, ...]:
        return _state_of(self.certificate), _state_of(self.private_key)


def _state_of(path: str) -> _FileState | None:
    """Identifies the content of a file; None if it does not exist."""
    with contextlib.suppress(OSError):
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            return _PIPE
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _context_of(chain: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    contents: dict[str, bytes] = {}
    try:
        for path in (chain, key):  # often one file; and a pipe gives its content only once
            if path not in contents:
                contents[path] = read_input(path, _MAX_BYTES)
        with memory_file(contents[chain]) as chain_path, memory_file(contents[key]) as key_path:
            # Without a password here, OpenSSL would ask for an encrypted key's on the terminal.
            context.load_cert_chain(chain_path, key_path, password="")
    except (OSError, ValueError) as error:
        flaw = _flaw_of(chain, key, contents, error)
        raise UnusablePair(
            f"cannot use the certificate chain in {chain} with the private key in {key}: {flaw}"
        ) from error
    return context


def _presented_by(context: ssl.SSLContext) -> bytes:
    """The certificate in DER as a client sees it: the file may have changed by now, or was a pipe.

    Empty if a client with the same OpenSSL would not accept it.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting_all = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting_all.check_hostname = False
    trusting_all.verify_mode = ssl.CERT_NONE
    client = trusting_all.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    # With TLS 1.3 the client has finished after its second turn, with 1.2 after its third.
    for side in (client, server) * 3:
        with contextlib.suppress(ssl.SSLError):
            side.do_handshake()
    with contextlib.suppress(ValueError):  # the handshake failed
        return client.getpeercert(binary_form=True) or b""
    return b""


def _flaw_of(chain: str, key: str, contents: Mapping[str, bytes], error: Exception) -> Exception | str:
    """What OpenSSL does not say: which file is wrong, and what it lacks."""
    for path, label, wanted in ((chain, b"CERTIFICATE-----", "certificate"), (key, b"PRIVATE KEY-----", "private key")):
        if path not in contents:
            return f"cannot read {path}: {getattr(error, 'strerror', error)}"
        if label not in contents[path]:
            return f"no {wanted} in PEM format in {path}"
        if path == key and b"ENCRYPTED" in contents[path]:
            return f"the private key in {path} is encrypted, want it without a passphrase"
    return error
