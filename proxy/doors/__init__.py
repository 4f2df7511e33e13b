"""Doors: where requests come in. Each turns the bytes of its connections into exchanges and back.

`doors` is all that a worker needs. The tunnel makes its connections to the edge with `h2connection` itself.
"""
