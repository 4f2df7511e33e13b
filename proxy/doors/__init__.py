"""Doors: where requests come in. Each turns the bytes of its connections into exchanges and back."""
