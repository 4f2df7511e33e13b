"""Sends out what was translated: documents to proxies, the ingress document to the provider, with receipts for each."""
