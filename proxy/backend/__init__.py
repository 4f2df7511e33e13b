"""Backends: where requests go. Exchanges use only `Pools`; `stream` is the interface between the two.

    Pools           all backends of the table
    Balancer        one backend: chooses the address for a request, and enforces the limits (`circuit`)
    Destination     one address: counts its requests, judges its `health`; `probes` check it
    ConnectionPool  the connections to it, and the requests that wait for one
    H1Link, H2Link  one connection, and how long it is kept (`keeping`); `connecting` makes it, with `resolver`,
                    `eyeballs` and `tls`; `resets`: what the reset of an HTTP/2 stream means

Everything runs in the loop's thread; blocking work is done by a `threadpool`. `health`, `circuit`, `keeping` and
`resets` are pure.
"""
