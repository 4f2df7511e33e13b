"""An edge for tests: the other side of what `proxy.tunnel` says."""
