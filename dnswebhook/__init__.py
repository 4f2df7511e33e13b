"""The webhook provider that external-dns calls to keep records on a UniFi network controller.

A request passes through bytes -> app -> wire -> provider -> adjust or plan -> store; its response returns through wire.
"""
