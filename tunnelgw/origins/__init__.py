"""Where objects come from, where their statuses go, and who knows the proxies' token: an API server, or a folder.

Only the one that is used is imported: the package `kubernetes` costs a third of a start, and 12 MiB.
"""

import threading

from tunnelgw.options import DIRECTORY, Options
from tunnelgw.origins.origin import Listeners, NoToken, Origin
from tunnelgw.sources.store import Store

__all__ = ["Listeners", "NoToken", "Origin", "origin_of"]


def origin_of(options: Options, store: Store, stop: threading.Event, listeners: Listeners) -> Origin:
    """Raises OSError when a folder cannot be used, or the kubeconfig cannot be read."""
    if options.source == DIRECTORY:
        from tunnelgw.origins.folder import FolderOrigin

        return FolderOrigin(options, store, stop)
    from tunnelgw.origins.apiserver import ApiServerOrigin

    return ApiServerOrigin(options, store, stop, listeners)
