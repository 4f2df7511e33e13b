"""How a command reaches the proxies and the provider, from the options of `run`; a missing token is not created."""

from daemonkit.secret import Secret
from tunnelgw.commands.diff import Access
from tunnelgw.commands.inputs import CannotAnswer
from tunnelgw.deliver.targets import Discovery
from tunnelgw.options import Options
from tunnelgw.provider.ingress import marker


def access_of(options: Options) -> Access:
    """Raises CannotAnswer."""
    discovery = Discovery(
        options.controller_name,
        options.namespace,
        endpoints=options.proxy_endpoints,
        service=options.proxy_service,
        is_tls=options.proxy_tls_server_name is not None,
        token=_token(options),
    )
    return Access(
        discovery,
        options.provider_api_url,
        marker(options.controller_id),
        proxy_ca_file=options.proxy_ca_file or "",
        proxy_server_name=options.proxy_tls_server_name or "",
        adopt=options.adopt,
    )


def _token(options: Options) -> Secret | None:
    if options.proxy_auth_token is not None or options.reads_folder:
        return options.proxy_auth_token
    # Imported here: manifests need no API server, and the import takes longer than reading them.
    from tunnelgw.sources.kubernetes.failures import ApiServerError
    from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
    from tunnelgw.sources.kubernetes.secrets import UnusableSecret, read_token
    from tunnelgw.sources.kubernetes.server import ApiServer

    server = ApiServer(lambda: load_configuration(options.kubeconfig or ""))
    try:
        return read_token(server, options.auth_secret_key)
    except (ApiServerError, UnusableSecret) as error:
        raise CannotAnswer(f"the proxies' token: {error}") from error
    finally:
        server.close()
