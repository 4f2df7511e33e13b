"""The DNS webhook under load, on each of its stores and beside its peers: `python -m benchmarks.dns`."""
