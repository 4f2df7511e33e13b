"""The token of the shared proxies' config APIs, as for `run`; but if it is missing, it is not created."""

from daemonkit.secret import Secret
from tunnelgw.commands.inputs import CannotAnswer
from tunnelgw.options import Options


def token_of(options: Options) -> Secret | None:
    """Raises CannotAnswer."""
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
