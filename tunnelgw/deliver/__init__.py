"""What was translated goes out: documents to the proxies, the ingress document to the provider, each with a receipt."""
