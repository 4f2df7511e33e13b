"""Backends: where requests go. Exchanges use only `Pools`; `stream` is the interface between the two.

    pools                                   all backends of the table
    balancer > circuit                      one backend: chooses the address for a request, and enforces the limits
    destination > health · probes           one address: counts its requests, judges and checks its health
    connectionpool                          the connections to it, and the requests that wait for one
    connecting > resolver · eyeballs · tls  makes a connection
    h1link · h2link > keeping · resets      one connection; how long it is kept; what the reset of a stream means
    uploads                                 bodies of requests over HTTP/2: how much is sent, and which wait
    request                                 one request, as the exchange holds it
    shared                                  what all connections of a worker have in common

Everything runs in the loop's thread; blocking work is done by a `threadpool`. `health`, `circuit`, `keeping` and
`resets` are pure.
"""
