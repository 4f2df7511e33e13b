"""Where objects and the proxies' token come from, and where statuses go: an API server, or a folder.

Only the one in use is imported: the package `kubernetes` takes a third of the start time, and 12 MiB.

apiserver · folder                      the origins
authsecret                              the proxies' token, in a Secret
origin                                  what the daemon needs of either
"""

import threading

from tunnelgw.options import Options
from tunnelgw.origins.origin import Listeners, NoToken, Origin
from tunnelgw.sources.store import Store

__all__ = ["Listeners", "NoToken", "Origin", "origin_of"]


def origin_of(options: Options, store: Store, stop: threading.Event, listeners: Listeners) -> Origin:
    """Raises OSError if a folder cannot be used, or the kubeconfig cannot be read."""
    if options.reads_folder:
        from tunnelgw.origins.folder import FolderOrigin

        return FolderOrigin(options, store, stop)
    from tunnelgw.origins.apiserver import ApiServerOrigin

    return ApiServerOrigin(options, store, stop, listeners)
