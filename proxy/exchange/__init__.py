"""Exchanges: one request of a client with its response, from the client's head to the last byte either way."""
