"""The token of the shared proxies' config API, determined once, at start.

If the options do not give it, it is read from a Secret in the controller's namespace, which is created if absent. It is
never changed: proxies too read it only once, so a new value would lock us out.
"""

import math
import secrets
import threading
import time
from collections.abc import Callable

from daemonkit.logs import get_logger
from daemonkit.secret import Secret
from tunnelgw.model.meta import Key
from tunnelgw.model.own import AUTH_TOKEN_FIELD
from tunnelgw.origins.origin import NoToken
from tunnelgw.sources.kubernetes.failures import Refused, Unreachable
from tunnelgw.sources.kubernetes.secrets import UnusableSecret, create, read_token
from tunnelgw.sources.kubernetes.server import ApiServer

log = get_logger(__name__)

_TOKEN_BYTES = 32
_RETRY_S = 1.0
_SAY_EVERY_S = 60.0
_FORBIDDEN_S = 5.0
"""If a permission is missing for this long, we give up."""
_DELETE = "delete it (kubectl -n {0} delete secret {1})"
_GRANT = (
    "give the controller's account get and create on Secrets; if a quota is exceeded, raise it; if an admission "
    f"policy refuses the Secret, create it yourself, with a random value at {AUTH_TOKEN_FIELD}"
)
_MEND = f"give it a value at {AUTH_TOKEN_FIELD} where it is managed"


def shared_token(
    server: ApiServer,
    key: Key,
    stop: threading.Event,
    *,
    is_managed: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Secret | None:
    """Waits for the API server, and for a Secret that somebody else manages; None: `stop` was set meanwhile.

    Raises NoToken, but for a missing permission not at once: a server that has just started does not know all roles.
    """
    where = f"failed to run controller: resolving shared-proxy auth secret: {key} key {AUTH_TOKEN_FIELD}"
    patient = log.every(_SAY_EVERY_S)
    forbidden_since_s = math.inf
    while not stop.is_set():
        try:
            token = _found_or_made(server, key, is_managed=is_managed)
        except UnusableSecret as error:
            remedy = _MEND if is_managed else _DELETE.format(*key)
            raise NoToken(
                f"{where}: the Secret exists but has no usable value at the expected key: {remedy}, "
                "then restart the controller and the proxies"
            ) from error
        except (Refused, Unreachable) as error:
            # Any other outcome in between begins the time anew: behind it may be a server that has just started.
            is_forbidden = isinstance(error, Refused) and error.status_code in (401, 403)
            forbidden_since_s = min(forbidden_since_s, clock()) if is_forbidden else math.inf
            if clock() - forbidden_since_s >= _FORBIDDEN_S:
                raise NoToken(f"{where}: {error}: {_GRANT}") from error
            patient.warning(
                "auth secret could not be read or created, retrying", error=error, name=str(key), delay_s=_RETRY_S
            )
        else:
            if token is not None:
                return token
            forbidden_since_s = math.inf
            patient.info("waiting for the auth secret, which somebody else creates", name=str(key), delay_s=_RETRY_S)
        stop.wait(_RETRY_S)
    return None


def _found_or_made(server: ApiServer, key: Key, *, is_managed: bool) -> Secret | None:
    found = read_token(server, key)
    if found is not None or is_managed:
        return found
    token = Secret(secrets.token_urlsafe(_TOKEN_BYTES))
    if create(server, key, token):
        log.info("auth secret created", name=str(key))
        return token
    return read_token(server, key)
