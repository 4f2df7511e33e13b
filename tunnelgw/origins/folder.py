"""A folder of manifests as the origin; statuses are files, and an option gives the proxies' token."""

import errno
import os
import threading

from daemonkit.secret import Secret
from daemonkit.values import shown_path
from tunnelgw.options import Options
from tunnelgw.origins.origin import Threads
from tunnelgw.report.events import Recorder
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.store import Store
from tunnelgw.sources.writing import Writer


class FolderOrigin:
    def __init__(self, options: Options, store: Store, stop: threading.Event) -> None:
        _require_manifests(options)
        if not options.dry_run:
            _require_writable(options)
        self.recorder: Recorder | None = None
        self._token = options.proxy_auth_token
        self._source = DirectorySource(
            options.manifests_path, options.status_path, store, stop, is_dry_run=options.dry_run
        )
        self.writer: Writer = self._source.writer()

    def threads(self) -> Threads:
        return [self._source.thread()]

    def leads(self) -> bool:
        return True

    def token(self) -> Secret | None:
        return self._token

    def drain(self) -> None:
        """Nothing to do: nothing takes longer than a look at the folder."""

    def give_way(self) -> None:
        """Nothing to do: no other controller is waiting."""

    def stop(self) -> None:
        """Nothing to do: nothing is open."""


def _require_manifests(options: Options) -> None:
    """A missing folder is not created: if its name were misspelt, an empty one would end all that is served."""
    path = options.manifests_path
    try:
        os.scandir(path).close()
    except OSError as error:
        reason = f"{error.strerror}: want the folder with the manifests, see --manifests"
        raise OSError(error.errno, reason, shown_path(str(path))) from None  # the cause repeats the path


def _require_writable(options: Options) -> None:
    """The folder keeps statuses, generations and creation times; without it, statuses would be wrong after a
    restart."""
    path = options.status_path
    remedy = "statuses are written here; choose another place with --status-dir"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"{reason}: {remedy}", str(path)) from error
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, f"read-only file system: {remedy}", str(path))
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"permission denied: {remedy}", str(path))
