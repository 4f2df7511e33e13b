"""Exchanges with the provider's API over HTTP: what `requests` does by itself is undone here, where it would harm.

A call ends within its time limit, whatever the provider does. Only one thread at a time may call.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.exceptions import InvalidProxyURL, InvalidSchema
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NameResolutionError, ProxySchemeUnknown
from urllib3.util.ssl_ import create_urllib3_context

import daemonkit
from daemonkit import addressfamilies
from daemonkit.causes import causes_of, forget_frames
from daemonkit.clienttls import without_formalities
from daemonkit.secret import Secret, text_without
from daemonkit.timedresponse import response_within
from daemonkit.wholenames import whole_name
from tunnelgw.provider.envelope import Answer
from tunnelgw.provider.errors import NameUnknown, ProviderError, ProviderUnreachable

DEFAULT_URL = "https://api.cloudflare.com/client/v4"
_DEFAULT_HOST = urlsplit(DEFAULT_URL).hostname
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_MAX_TEXT = 256
_PROXY = "the proxy of the environment (HTTPS_PROXY or ALL_PROXY)"
_WRONG_PROXY = (
    f"{_PROXY} is no URL such as http://proxy.example:3128; in a user or password, "
    "write other characters than letters and digits as %40 and the like"
)


class CallTiming(msgspec.Struct, frozen=True):
    connect_s: float = 5.0
    silence_s: float = 15.0
    """The longest time for which the provider may send nothing."""
    answer_s: float = 30.0
    """For the whole answer, however slowly it comes."""
    idle_s: float = 30.0
    """A connection that was idle for longer is not used again: on the way it may have been forgotten (NAT)."""


class Transport:
    """For one token."""

    def __init__(self, token: Secret, base_url: str, timing: CallTiming) -> None:
        self._token = token
        self._base_url = base_url.rstrip("/")
        self._timing = timing
        self._used_at_s = 0.0
        self._session = _Session()
        self._session.auth = _Bearer(token)
        self._session.cookies.set_policy(_NO_COOKIES)
        self._session.headers.update({"Accept": "application/json", "User-Agent": f"tunnelgw/{daemonkit.__version__}"})
        adapter = _TimedAdapter(timing.answer_s)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def close(self) -> None:
        self._session.close()

    def exchange(self, name: str, method: str, path: str, body: bytes | None) -> Answer:
        """`name`: of the call, for messages. Raises ProviderUnreachable, or NameUnknown."""
        call = f"{name} ({method} {path.partition('?')[0]})"
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if time.monotonic() - self._used_at_s > self._timing.idle_s:
            # This closes only its connections; it opens new ones.
            self._session.close()
        try:
            with self._session.request(
                method,
                self._base_url + path,
                data=body,
                headers=headers,
                timeout=(self._timing.connect_s, self._timing.silence_s),
                stream=True,
            ) as response:
                return Answer(call, response.status_code, _read(response, call), response.headers, self._token)
        except UnicodeEncodeError as error:  # it quotes the password
            forget_frames(error)
            raise ProviderUnreachable(f"{call}: the proxy's user or password is not Latin-1") from None
        except (OSError, HTTPError) as error:  # requests' own, or that there is no file REQUESTS_CA_BUNDLE
            forget_frames(error)
            raise self._unreachable(call, error) from None
        finally:
            self._used_at_s = time.monotonic()

    def _unreachable(self, call: str, error: Exception) -> ProviderError:
        """requests and urllib3 wrap errors several times: the message shows the innermost."""
        innermost: BaseException = error
        for reason in causes_of(error):
            if isinstance(reason, NameResolutionError):
                host, remedy = reason.conn.host, "the provider's API URL"
                if reason.conn.proxy is not None:
                    host, remedy = f"{host}, {_PROXY}", "that variable"
                return NameUnknown(f"{call}: no such host: {host}: check DNS on this machine, or {remedy}")
            innermost = reason
        # What is no HTTP is part of the error.
        said = text_without(str(innermost), (self._token.reveal(),))
        return ProviderUnreachable(f"{call}: {said[:_MAX_TEXT] or type(innermost).__name__}")


class _Bearer(AuthBase):
    """As `auth`, not as a header: a .netrc entry would replace the header."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return request


_NO_COOKIES = DefaultCookiePolicy(allowed_domains=())
"""The API needs none. If each answer set another one, requests would grow until they were refused."""


class _Session(requests.Session):
    """Sees no redirection. Even if told to follow none, requests parses the target, and raises if it is bad."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        return None


class _TimedAdapter(HTTPAdapter):
    """Uses connections whose answers are complete in time, or fail."""

    def __init__(self, answer_s: float) -> None:
        self._pool_classes = _pool_classes(answer_s)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pool_classes

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pool_classes
        return manager

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        with _parsing_proxy():
            return super().get_connection_with_tls_context(*args, **kwargs)

    def request_url(self, *args: Any, **kwargs: Any) -> str:
        with _parsing_proxy():
            return super().request_url(*args, **kwargs)


@contextmanager
def _parsing_proxy() -> Iterator[None]:
    """What requests says about a proxy whose URL is wrong may quote its password, or is a bug of its own."""
    try:
        yield
    except (UnicodeEncodeError, InvalidSchema, ProxySchemeUnknown):
        raise
    except (ValueError, TypeError):
        raise InvalidProxyURL(_WRONG_PROXY) from None


@cache  # classes can only be freed by the garbage collector
def _pool_classes(answer_s: float) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        response_class = response_within(answer_s)

        def connect(self) -> None:
            addressfamilies.try_usable()
            super().connect()

    class Encrypted(Plain, HTTPSConnection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if self.host == _DEFAULT_HOST:
                # urllib3 uses the trailing dot for the resolver only.
                self.host = whole_name(self.host)
            self.ssl_context = without_formalities(self.ssl_context or create_urllib3_context())

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    return {"http": PlainPool, "https": EncryptedPool}


def _read(response: requests.Response, call: str) -> bytes:
    content = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise ProviderUnreachable(f"{call}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(content)
