"""A throw-away Kubernetes API server, and the Go programs that the tests drive."""
