"""The tunnel provider's HTTP API (version 4), as far as one remotely configured tunnel needs it. One method, one call.

Nothing is retried here: callers know what else has changed meanwhile, and each configuration is read before it is
written anyway. A call ends within its time limit, whatever the provider does, and every failure is a ProviderError.
Only one thread at a time may call.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

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
from tunnelgw.provider.envelope import UNREADABLE, Answer, Envelope, opened
from tunnelgw.provider.errors import NameUnknown, NotThere, ProviderError, ProviderUnreachable, RateLimited
from tunnelgw.provider.ingress import Config
from tunnelgw.provider.pacing import Pace

DEFAULT_URL = "https://api.cloudflare.com/client/v4"
_DEFAULT_HOST = urlsplit(DEFAULT_URL).hostname
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_ACCOUNTS_PER_PAGE = 50
_MAX_TEXT = 256
_WRONG_PROXY = (
    "the proxy of the environment (HTTPS_PROXY) is no URL such as http://proxy.example:3128; in a user or password, "
    "write other characters than letters and digits as %40 and the like"
)

T = TypeVar("T")
Observer = Callable[[str, str, float], None]
"""Called after each call with its name, `ok` or the class of its error, and seconds."""


class CallTiming(msgspec.Struct, frozen=True):
    connect_s: float = 5.0
    silence_s: float = 15.0
    """The longest time for which the provider may send nothing."""
    answer_s: float = 30.0
    """For the whole answer, however slowly it comes."""
    idle_s: float = 30.0
    """A connection that was idle for longer is not used again: on the way it may have been forgotten (NAT)."""


class Tunnel(msgspec.Struct, frozen=True):
    """`GET /accounts/{a}/cfd_tunnel/{t}`."""

    id: str
    config_src: str = ""
    """`cloudflare`: configured remotely; `local`: its connectors ignore the ingress document."""
    deleted_at: str | None = None


class Configuration(msgspec.Struct, frozen=True):
    """`GET` and `PUT /accounts/{a}/cfd_tunnel/{t}/configurations`."""

    version: int = 0
    """Rises with each accepted PUT, ours or others'."""
    config: dict[str, Any] | None = None
    """None for a new tunnel."""

    def __post_init__(self) -> None:
        """Fails if rules cannot be read: those of others would be lost with the next write."""
        rules = (self.config or {}).get("ingress")
        if rules is not None and not (isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)):
            raise ValueError("`config.ingress` is not a list of rules")


class Account(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


# Made before there are threads: while one thread has msgspec analyse a type, others that use that type would crash.
_accounts = msgspec.json.Decoder(list[Account])
_tunnel = msgspec.json.Decoder(Tunnel)
_configuration = msgspec.json.Decoder(Configuration)


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


def _observe_nothing(call: str, outcome: str, seconds: float) -> None:
    pass


def _allow(call: str) -> None:
    pass


class Budget:
    """A budget of calls, for all clients of one token. Thread-safe."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._lock = threading.Lock()

    def take(self) -> float:
        """0: a call may be made now, and is counted; otherwise how long to wait before asking again."""
        with self._lock:
            now_s = time.monotonic()
            wait_s = self._pace.wait_s(now_s)
            if wait_s <= 0:
                self._pace.note_call(now_s)
            return wait_s

    def block(self, pause_s: float) -> None:
        """The provider asked for no calls for this long."""
        with self._lock:
            self._pace.block(time.monotonic() + pause_s)


class ProviderClient:
    """A client with one token."""

    def __init__(
        self,
        token: Secret,
        base_url: str = DEFAULT_URL,
        observe: Observer = _observe_nothing,
        budget: Budget | None = None,
        timing: CallTiming = CallTiming(),  # noqa: B008  # frozen
        before_call: Callable[[str], None] = _allow,
    ) -> None:
        """`budget`: shared by all clients with this token; None: there are no others.

        `before_call` is called with the name of each call, and may raise to prevent it.
        """
        self._before_call = before_call
        self._timing = timing
        self._base_url = base_url.rstrip("/")
        self._observe = observe
        self._budget = budget or Budget()
        self._used_at_s = 0.0
        self._session = _Session()
        self._token = token
        self._session.auth = _Bearer(token)
        self._session.cookies.set_policy(_NO_COOKIES)
        self._session.headers.update({"Accept": "application/json", "User-Agent": f"tunnelgw/{daemonkit.__version__}"})
        adapter = _TimedAdapter(timing.answer_s)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def close(self) -> None:
        self._session.close()

    def accounts(self) -> list[Account]:
        """The first page is enough: with more than one account the choice is ambiguous anyway."""
        envelope = self._call("list accounts", "GET", f"/accounts?per_page={_ACCOUNTS_PER_PAGE}")
        return _result(envelope, _accounts)

    def tunnel(self, account_id: str, tunnel_id: str) -> Tunnel:
        """Raises NotThere for a deleted tunnel too."""
        tunnel = _result(self._call("read tunnel", "GET", _tunnel_path(account_id, tunnel_id)), _tunnel)
        if tunnel.deleted_at:
            raise NotThere(f"tunnel {tunnel_id} was deleted at {tunnel.deleted_at}: create one, and change tunnelID")
        return tunnel

    def configuration(self, account_id: str, tunnel_id: str) -> Configuration:
        path = f"{_tunnel_path(account_id, tunnel_id)}/configurations"
        return _result(self._call("read configuration", "GET", path), _configuration)

    def put_configuration(self, account_id: str, tunnel_id: str, config: Config) -> Configuration:
        """Replaces the whole document. After ProviderUnreachable it may or may not have been replaced."""
        path = f"{_tunnel_path(account_id, tunnel_id)}/configurations"
        body = msgspec.json.encode({"config": config})
        return _result(self._call("write configuration", "PUT", path, body), _configuration)

    def _call(self, name: str, method: str, path: str, body: bytes | None = None) -> Envelope:
        self._before_call(name)
        wait_s = self._budget.take()
        if wait_s > 0:
            raise RateLimited(f"{name}: not asked for a while, to stay below the provider's limit of calls", wait_s)
        started_s = time.monotonic()
        outcome = "ok"
        try:
            return opened(self._exchange(name, method, path, body))
        except ProviderError as error:
            outcome = type(error).__name__
            if isinstance(error, RateLimited):
                self._budget.block(error.retry_after_s)
            raise
        finally:
            self._observe(name, outcome, time.monotonic() - started_s)

    def _exchange(self, name: str, method: str, path: str, body: bytes | None) -> Answer:
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
                host = urlsplit(self._base_url).hostname
                return NameUnknown(
                    f"{call}: no such host: {host}: check DNS on this machine, or the provider's API URL"
                )
            innermost = reason
        # What is no HTTP is part of the error.
        said = text_without(str(innermost), (self._token.reveal(),))
        return ProviderUnreachable(f"{call}: {said[:_MAX_TEXT] or type(innermost).__name__}")


def _result(envelope: Envelope, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(envelope.result)
    except UNREADABLE as error:
        raise ProviderUnreachable(f"the provider's answer is not what its documentation says: {error}") from error


def _tunnel_path(account_id: str, tunnel_id: str) -> str:
    return f"/accounts/{quote(account_id, safe='')}/cfd_tunnel/{quote(tunnel_id, safe='')}"


def _read(response: requests.Response, call: str) -> bytes:
    content = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise ProviderUnreachable(f"{call}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(content)
