"""Doors: where requests come in. Each turns the bytes of its connections into exchanges and back.

A worker needs only `doors`. The tunnel builds its connections to the edge on `h2connection` directly.
"""
