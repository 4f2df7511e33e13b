"""The tunnel provider: its HTTP API, and the ingress document that it stores for a tunnel."""
