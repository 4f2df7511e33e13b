"""Backends: where requests go. Exchanges need `Pools` alone; what the two know of each other is in `stream`.

    Pools           all backends of the table
    Balancer        one backend: which of its addresses gets a request, and whether it may go at all (`circuit`)
    Destination     one address: its requests are counted, its `health` is judged, `probes` ask it
    ConnectionPool  the connections to it, and the requests that wait for one
    H1Link, H2Link  one connection, and how long it is kept (`keeping`); `connecting` makes it, with `resolver`,
                    `eyeballs` and `tls`

All of it belongs to the loop's thread; what blocks is done by a `threadpool`. `health`, `circuit` and `keeping` are
pure.
"""
