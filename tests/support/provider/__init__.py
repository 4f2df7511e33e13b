"""A simulation of the tunnel provider's HTTP API: accounts, tunnels, their ingress documents, tokens, limits, faults.

It speaks the real protocol over a socket. Where the provider's documentation is silent, it does what clients have
observed: identical PUTs raise the version, read-back adds empty parts, code 10000 stands for two different errors.
"""

from tests.support.provider.provider import ACCOUNT_ID, TOKEN, TUNNEL_ID, Provider

__all__ = ["ACCOUNT_ID", "TOKEN", "TUNNEL_ID", "Provider"]
