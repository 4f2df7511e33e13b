"""Which proxies are asked, and how they and the provider are reached, from the options: for `run` and `diff` alike."""

from daemonkit.secret import Secret
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.targets import Discovery
from tunnelgw.options import Options
from tunnelgw.provider.ingress import marker


def discovery_of(options: Options, token: Secret | None) -> Discovery:
    """`token`: of the shared proxies' config APIs."""
    return Discovery(
        options.controller_name,
        options.namespace,
        endpoints=options.proxy_endpoints,
        service=options.proxy_service,
        is_tls=options.proxy_tls_server_name is not None,
        token=token,
    )


def means_of(options: Options) -> Means:
    return Means(
        options.provider_api_url,
        marker(options.controller_id),
        proxy_ca_file=options.proxy_ca_file or "",
        proxy_server_name=options.proxy_tls_server_name or "",
        adopt=options.adopt,
    )
