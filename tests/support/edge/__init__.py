"""A tunnel edge for tests: the peer that `proxy.tunnel` talks to."""
