"""`make bench-proxy`: the proxy beside nginx and nghttpx, in the same run on the same machine."""
