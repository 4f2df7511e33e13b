"""A throw-away Kubernetes API server."""
