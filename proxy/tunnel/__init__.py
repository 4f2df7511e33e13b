"""The tunnel's protocol, without input or output: what is said to the provider's edge, and what its answers mean.

    token           who we are allowed to be             identity        what we say of ourselves
    discovery       where the edge is                    addresses       which of its addresses each connection dials
    retry           when to dial again                   controlstream   registering a connection, and unregistering it
    streams         requests as the edge sends them      responses       responses as it wants them
    remoteconfig    configurations that it pushes       failures        what can go wrong, in a closed set of words

Under `controlstream` lie `registration` (the interface's structs), `rpc` (the envelope) and `capnp` (the encoding).
No sockets, clocks, chance, threads or logs: HTTP/2 itself is `proxy.h2`, in its server role on a connection that we
have dialled.
"""
