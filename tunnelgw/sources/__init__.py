"""Where objects come from: a Kubernetes API server or a folder of manifests. Both feed one store."""
