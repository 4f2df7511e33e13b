"""The tunnel provider: its HTTP API, and the ingress document that it keeps for a tunnel."""
