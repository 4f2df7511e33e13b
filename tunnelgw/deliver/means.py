"""How proxies and the provider are reached: by the couriers, and by whoever compares what is there."""

import msgspec

from tunnelgw.deliver.configclient import ConfigEndpoint
from tunnelgw.deliver.targets import Tunnel
from tunnelgw.provider.client import ProviderClient
from tunnelgw.provider.tunnel import TunnelDocument, TunnelRef


class Means(msgspec.Struct, frozen=True):
    """From the options."""

    provider_url: str
    marker: str
    """The `service` of our rules in ingress documents."""
    proxy_ca_file: str = ""
    proxy_server_name: str = ""
    adopt: bool = False

    def proxy(self, url: str) -> ConfigEndpoint:
        return ConfigEndpoint(url, self.proxy_ca_file, self.proxy_server_name)

    def ingress(self, tunnel: Tunnel, client: ProviderClient, *, is_dry_run: bool = False) -> TunnelDocument:
        ref = TunnelRef(tunnel.tunnel_id, tunnel.account_id, tunnel.remedy)
        return TunnelDocument(client, ref, self.marker, adopt=self.adopt, is_dry_run=is_dry_run)
