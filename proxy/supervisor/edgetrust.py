"""Which CAs to trust for the edge: the operator's, or the provider's two published roots.

We may not ship the roots. They are fetched over HTTPS and accepted only with the SHA-256 fingerprints below, whoever
answered. They are kept in the state directory and checked again when read from there. A disk that hangs is not waited
for: the roots are then fetched, and kept when it answers.
"""

import contextlib
import hashlib
import http.client
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from daemonkit.clienttls import MAX_AUTHORITIES_BYTES, trusting
from daemonkit.filereading import read_regular
from daemonkit.lifecycle import StartFailed, start_thread
from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file
from daemonkit.timedresponse import response_within

log = get_logger(__name__)

NAME: Final = "edge-roots.pem"
_TIMEOUT_S: Final = 10.0
_ANSWER_S: Final = 30.0
"""For each whole answer."""
DISK_S: Final = 5.0
"""How long to wait for the state directory."""
_MAX_BYTES: Final = 64 * 1024
_REMEDY: Final = (
    "; without Internet access, fetch them elsewhere with `tunnelgw-proxy edge-ca`, and give the file (--edge-ca-file)"
)
_BASE: Final = "https://developers.cloudflare.com/ssl/static/"


class PublishedRoot(msgspec.Struct, frozen=True):
    url: str
    sha256: str
    """The certificate's fingerprint, in hex."""


PUBLISHED: Final = (
    PublishedRoot(_BASE + "origin_ca_ecc_root.pem", "aa63697a22764b67b2134ce14cb5690ea336940b93986113f49545917832d80d"),
    PublishedRoot(_BASE + "origin_ca_rsa_root.pem", "d3c7e85c91707fc0a12abc5d88266747aa4fa8e7b162f633ffb3c9d989947620"),
)


class TrustUnavailable(Exception):
    """The CAs are not available now, but may be later."""


class EdgeTrust(Protocol):
    def roots(self) -> str:
        """The CAs to trust, in PEM. Raises TrustUnavailable."""


class NamedAuthorities:
    """The file of --edge-ca-file, read again for each search, so that it can be renewed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def roots(self) -> str:
        try:
            roots = read_regular(self._path, MAX_AUTHORITIES_BYTES).decode("ascii", "ignore")
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=roots)
        except (ssl.SSLError, ValueError) as error:
            raise TrustUnavailable(
                f"--edge-ca-file {self._path}: cannot read certificates (PEM) from it: {_reason(error)}"
            ) from error
        except OSError as error:
            raise TrustUnavailable(f"cannot read --edge-ca-file {self._path}: {error.strerror}") from error
        return roots


class PublishedRoots:
    """Not thread-safe."""

    def __init__(self, state_dir: Path | None, published: Sequence[PublishedRoot] = PUBLISHED) -> None:
        self._published = published
        self._disk = _Disk(state_dir / NAME, published) if state_dir is not None else None
        self._roots = ""

    def roots(self) -> str:
        if not self._roots:
            self._roots = (self._disk.kept() if self._disk is not None else "") or self._fetched()
        return self._roots

    def _fetched(self) -> str:
        try:
            roots = fetch(self._published)
        except TrustUnavailable as error:
            raise TrustUnavailable(f"{error}{_REMEDY}") from error
        if self._disk is not None:
            self._disk.keep(roots)
        return roots


class _Disk:
    """The roots in the state directory. Each call returns within DISK_S; what hangs is left to a thread."""

    def __init__(self, path: Path, published: Sequence[PublishedRoot]) -> None:
        self._path = path
        self._published = published
        self._read_done: threading.Event | None = None
        self._found = ""

    def kept(self) -> str:
        """The roots that were kept; empty if there are none to trust, or the disk hangs."""
        if self._read_done is None or self._read_done.is_set():
            self._read_done = _begun(self._read)
        if not self._read_done.wait(DISK_S):
            self._say_unread(_silence())
        return self._found

    def _read(self) -> None:
        self._found = ""
        try:
            roots = read_regular(self._path, _MAX_BYTES * len(self._published)).decode("ascii", "ignore")
            if sorted(_fingerprints(roots)) == sorted(root.sha256 for root in self._published):
                self._found = roots
                return
            log.warning("the edge's roots in the state directory are not the published ones", path=str(self._path))
        except FileNotFoundError:
            pass
        except OSError as error:
            self._say_unread(error)

    def _say_unread(self, error: OSError) -> None:
        log.warning("cannot read the edge's roots in the state directory", error=error, path=str(self._path))

    def keep(self, roots: str) -> None:
        def write() -> None:
            try:
                replace_file(self._path, roots.encode())
            except OSError as error:
                self._say_unkept(error)

        if not _begun(write).wait(DISK_S):
            self._say_unkept(_silence())

    def _say_unkept(self, error: OSError) -> None:
        log.warning("cannot keep the edge's roots", error=error, path=str(self._path))


def _begun(target: Callable[[], None]) -> threading.Event:
    """Run `target` in a thread that the stop does not wait for; returns an event that its end sets."""
    done = threading.Event()

    def run() -> None:
        try:
            target()
        finally:
            done.set()

    try:
        start_thread(threading.Thread(target=run, name="edge-roots", daemon=True))
    except StartFailed:
        run()
    return done


def _silence() -> OSError:
    return TimeoutError(f"the disk has not answered within {DISK_S:g} s")


def fetch(published: Sequence[PublishedRoot] = PUBLISHED) -> str:
    """Fetch the roots, each checked, in PEM. Raises TrustUnavailable."""
    return "".join(map(_fetch_one, published))


def edge_trust(ca_file: str | None, state_dir: Path | None) -> EdgeTrust:
    """`ca_file` is the value of --edge-ca-file, if given."""
    return NamedAuthorities(Path(ca_file)) if ca_file else PublishedRoots(state_dir)


def _fetch_one(root: PublishedRoot) -> str:
    try:
        request = urllib.request.Request(root.url, headers={"User-Agent": "tunnelgw-proxy"})
        with _opener() as opener, opener.open(request, timeout=_TIMEOUT_S) as response:
            text: str = response.read(_MAX_BYTES).decode("ascii", "ignore")
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # the response, which it holds in a cycle
        raise TrustUnavailable(f"cannot fetch the edge's root certificate {root.url}: {_reason(error)}") from error
    found = _fingerprints(text)
    if found != [root.sha256]:
        raise TrustUnavailable(
            f"{root.url} is not the expected certificate: SHA-256 {', '.join(found) or 'none'}, want {root.sha256}"
        )
    return text.strip() + "\n"


def _reason(error: Exception) -> str:
    # A text, since a variable that held the error would keep it alive, and its frames.
    seen = repr(error) if isinstance(error, http.client.HTTPException) else error
    return str(getattr(error, "reason", None) or seen)


@contextlib.contextmanager
def _opener() -> Iterator[urllib.request.OpenerDirector]:
    """Ends the cycles of an opener and its handlers, one of which has all authorities of the system: a MiB or more."""
    opener = urllib.request.build_opener(_TimedHandler(trusting()), _RedirectHandler())
    try:
        yield opener
    finally:
        for handler in opener.handlers:  # type: ignore[attr-defined]
            del handler.parent


class _TimedHandler(urllib.request.HTTPSHandler):
    """urllib's timeout is for each read alone."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._trust = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_timed_connection, req, context=self._trust)


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Answers by http and ftp would not be timed, and urllib reads the body of a redirect whatever its length."""

    max_redirections, max_repeats = 3, 1
    """Of different URLs, and of each. Ten and four, every one with a time limit of its own, would take minutes."""
    inf_msg = "redirected too often: "

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        fp.close()
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and redirected.type != "https":
            raise ValueError(f"it redirects to {newurl[:200]}, want https")
        return redirected


def _timed_connection(host: str, **kwargs: Any) -> http.client.HTTPSConnection:
    connection = http.client.HTTPSConnection(host, **kwargs)
    connection.response_class = response_within(_ANSWER_S)
    return connection


def _fingerprints(text: str) -> list[str]:
    """The fingerprint of each certificate in the text."""
    found = []
    for part in text.split("-----BEGIN CERTIFICATE-----")[1:]:
        body = part.partition("-----END CERTIFICATE-----")[0]
        try:
            der = ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}{body}{ssl.PEM_FOOTER}")
        except ValueError:
            continue
        found.append(hashlib.sha256(der).hexdigest())
    return found
