"""The webhook provider that external-dns calls to keep records on a UniFi network controller.

One request walks bytes -> app -> wire -> provider -> adjust or plan -> store, and its answer back through wire.
"""
