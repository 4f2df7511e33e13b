"""A Kubernetes API server as a source, and what we write to it.

The package `kubernetes` reads kubeconfig and service accounts, and sets up TLS. Its informer and its typed models are
not used: objects are decoded from the raw bytes of a list or watch, one at a time.

    source      one thread per kind, and one that fetches objects that are named only later
    watch       one kind: list, watch, start again
    setbacks    how long to wait before that, depending on what went wrong
    discovery   which version of a kind is served, and the wait for kinds that are not installed
    decode      bytes from the API to objects
    server      requests and streams, with deadlines
    access · pluginlock                     the configuration in use; one thread at a time gets credentials
    connections · reach                     ending connections from another thread; whether the server answers at all
    kubeconfig                              the API server's address, and our credentials
    failures                                how a request can fail
    statuses · secrets · lease · events     what is written
"""
