"""Address and credentials for the API server, from a kubeconfig or the Pod's service account, read by `kubernetes`."""

import os
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
import yaml
from kubernetes.client import Configuration, OpenApiException
from kubernetes.client.rest import should_bypass_proxies
from kubernetes.config import ConfigException, list_kube_config_contexts, load_incluster_config, load_kube_config
from kubernetes.config.kube_config import KubeConfigMerger

from tunnelgw.sources.kubernetes.failures import LONGEST_MESSAGE, Unreachable

_NO_ACCESS = (
    ConfigException,
    OpenApiException,
    urllib3.exceptions.HTTPError,
    yaml.YAMLError,
    OSError,
    ValueError,
    ImportError,  # a package for SOCKS proxies may be missing
)
_NO_KUBECONFIG = (AttributeError, LookupError, TypeError, OverflowError, RecursionError)
"""Neither PyYAML nor the package checks the file's content."""
_USUAL_KUBECONFIG = "~/.kube/config"
_WRONG_PROXY = (
    "the proxy (proxy-url of the kubeconfig, HTTPS_PROXY or ALL_PROXY) is no URL such as http://proxy.example:3128; in "
    "a user or password, write other characters than letters and digits as %40 and the like"
)


def load_configuration(kubeconfig: str = "") -> Configuration:
    """From the given file, else from the Pod's service account, else from `~/.kube/config`. Raises Unreachable.

    With a file, its `proxy-url` applies, or else the environment's proxy if the server is not on this machine, as with
    kubectl.
    """
    configuration = Configuration()
    try:
        with gaining_access():
            configuration.proxy = None
            if not kubeconfig and "KUBERNETES_SERVICE_HOST" in os.environ:
                # A proxy of the environment is for the provider: it would not reach cluster addresses.
                load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            else:
                file = kubeconfig or _USUAL_KUBECONFIG
                if not _exists(file):
                    why = "" if kubeconfig else "this is no Pod, and "
                    raise Unreachable(f"no access to a cluster: {why}there is no {file}")
                try:
                    load_kube_config(file, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
                except UnicodeDecodeError as error:  # PowerShell's `>` writes UTF-16
                    raise Unreachable(f"no access to a cluster: {file}, or a file it names, is not UTF-8") from error
                _require_credentials(configuration, file)
                _choose_proxy(configuration)
    except _NO_KUBECONFIG as error:
        raise Unreachable(f"no access to a cluster: {kubeconfig or _USUAL_KUBECONFIG} is not a kubeconfig") from error
    if "://" not in configuration.host:  # urllib3 would use http, and send the account's token in clear text
        raise Unreachable(
            f"no access to a cluster: {kubeconfig or _USUAL_KUBECONFIG} names the server {configuration.host!r}, "
            "want a URL such as https://192.0.2.1:6443"
        )
    return configuration


def edition(kubeconfig: str) -> Hashable:
    """Identifies the state of the files that `load_configuration` reads: it changes if they are written or replaced."""
    if not kubeconfig and "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    return tuple(_written(name) for name in (kubeconfig or _USUAL_KUBECONFIG).split(os.pathsep))


def _written(name: str) -> Hashable:
    try:
        found = Path(name).expanduser().stat()
    except (OSError, RuntimeError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _require_credentials(configuration: Configuration, file: str) -> None:
    """If a plugin fails, the package only logs that, and would continue without credentials: the server would answer
    403 instead of 401, and we would never run the plugin again.
    """
    if configuration.api_key or configuration.cert_file:
        return
    _, current = list_kube_config_contexts(file)  # type: ignore[no-untyped-call]
    users = KubeConfigMerger(file).config["users"]  # type: ignore[no-untyped-call]
    user = users.get_with_name(current["context"].get("user", ""), safe=True)
    if user and user["user"] and "exec" in user["user"]:
        raise Unreachable(f"no access to a cluster: the plugin {user['user']['exec']['command']} gave no credentials")


def _choose_proxy(configuration: Configuration) -> None:
    """NO_PROXY is about the environment's proxy only; the package would apply it to one of the kubeconfig too."""
    if configuration.proxy:
        if not isinstance(configuration.proxy, str):
            raise TypeError("proxy-url is no text")
        configuration.no_proxy = None
    elif not _is_on_this_machine(configuration.host):
        configuration.proxy = Configuration(host=configuration.host).proxy
    if not configuration.proxy or should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return  # the package does not look at it either
    if not _has_host(configuration.proxy):
        raise Unreachable(f"no access to a cluster: {_WRONG_PROXY}")


def _has_host(url: str) -> bool:
    try:
        return bool(urllib3.util.parse_url(url).host)
    except urllib3.exceptions.LocationParseError:  # it may quote the password
        return False


def _is_on_this_machine(url: str) -> bool:
    """As Go has it for proxies of the environment."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _exists(kubeconfig: str) -> bool:
    """Any of its files, of which KUBECONFIG may name several."""
    try:
        return any(Path(file).expanduser().exists() for file in kubeconfig.split(os.pathsep) if file)
    except RuntimeError:  # the user has no home directory
        return False


@contextmanager
def gaining_access() -> Iterator[None]:
    """Converts the package's errors to Unreachable: from reading credentials, running plugins for them, or proxies."""
    try:
        yield
    except _NO_ACCESS as error:
        raise Unreachable(f"no access to a cluster: {str(error)[:LONGEST_MESSAGE].rstrip('.')}") from error
