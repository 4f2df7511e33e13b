"""Routing: document in, compiled table out; table and request head in, decision out."""
