"""Measures the tunnel: `make bench-tunnel`."""
