"""What a configuration gives: the API server's place, connections to it, and credentials for each request."""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject

import daemonkit
from daemonkit.secret import Secret
from tunnelgw.sources.kubernetes.connections import SOCKET_OPTIONS, Connections
from tunnelgw.sources.kubernetes.failures import Unreachable
from tunnelgw.sources.kubernetes.kubeconfig import gaining_access
from tunnelgw.sources.kubernetes.pluginlock import PluginLock

CONNECT_S = 5.0
_CONNECTIONS = 32
_USER_AGENT = f"tunnelgw/{daemonkit.__version__}"
"""The API server records the part before the slash as the manager of the fields that we write."""


class Call(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    timeout_s: float
    answer_s: float


class Access:
    """The configuration as read once, with its connections."""

    def __init__(
        self, configuration: Configuration, connections: Connections, edition: Hashable, reading: PluginLock
    ) -> None:
        self.edition = edition
        self._reading = reading
        configuration.connection_pool_maxsize = _CONNECTIONS
        configuration.socket_options = SOCKET_OPTIONS
        self._configuration = configuration
        self._settings: Mapping[str, Any] = {}
        """How to authorise a request, as last got."""
        self.host: str = configuration.host
        self.secrets: tuple[str, ...] = ()
        """What the last request was authorised with."""
        with gaining_access():
            self._pools: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self.place = self.host
        """For messages: the server, and the proxy on the way without its password."""
        if isinstance(self._pools, urllib3.ProxyManager) and self._pools.proxy:
            self.place += f" through the proxy {self._pools.proxy._replace(auth=None)}"
        self._connections = connections
        self._pools.pool_classes_by_scheme = connections.pool_classes()

    @contextmanager
    def open(self, call: Call) -> Iterator[urllib3.BaseHTTPResponse]:
        self._connections.limit_answer(call.answer_s)
        response = self._pools.request(
            call.method,
            self.host + call.path + ("?" + urlencode(call.query) if call.query else ""),
            headers={"User-Agent": _USER_AGENT, **call.headers, **self._credentials()},
            body=call.body,
            timeout=urllib3.Timeout(connect=CONNECT_S, read=call.timeout_s),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            yield response
        finally:
            response.release_conn()

    def has_its_files(self) -> bool:
        names = (self._configuration.ssl_ca_cert, self._configuration.cert_file, self._configuration.key_file)
        return all(Path(name).exists() for name in names if name)

    def close(self) -> None:
        self._pools.clear()

    def _credentials(self) -> dict[str, str]:
        """The headers with credentials; a token file is read again now and then, and a plugin run again when its token
        expires. What it gives is also for threads that wait meanwhile: a token that lives for few minutes only counts
        as expired at once. Raises Unreachable, also for a value that does not fit in a header: HTTP libraries would
        show it in their errors.
        """
        last = self._settings
        with self._reading, gaining_access():
            if self._settings is last:
                self._settings = self._configuration.auth_settings()
            settings = self._settings
        found = {each["key"]: each["value"].strip() for each in settings.values() if each["in"] == "header"}
        if not all(Secret(text).fits_header() for text in found.values()):
            raise Unreachable("no access to a cluster: the account's token is not one line of printable ASCII")
        self.secrets = tuple(text.rpartition(" ")[2] for text in found.values() if text)
        return {name: text for name, text in found.items() if text}
