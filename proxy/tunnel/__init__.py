"""The tunnel: connections that we dial at the provider's edge, registered there, and what the edge sends over them.

What is said and what it means, without input or output:

    token           who we are allowed to be             identity        what we say of ourselves
    discovery       where the edge is                    addresses       which of its addresses each connection dials
    retry           when to dial again                   controlstream   registering a connection, and unregistering it
    streams         requests as the edge sends them      responses       responses as it wants them
    remoteconfig    configurations that it pushes       failures        what can go wrong, in a closed set of words
    packetsize      whether to dial with smaller packets

Under `controlstream` lie `registration` (the interface's structs), `rpc` (the envelope) and `capnp` (the encoding);
`controlevents` are what it reports, `errors` what its caller can do wrong.
No sockets, clocks, chance, threads or logs there.

At work, in a worker's loop:

    links           all connections of the worker        link            one, from its dial to its end
    dialling        TCP and TLS                          edgehttp        HTTP/2 in its server role, towards one peer
    control         the control stream, carried          pushes          pushed configurations, carried
    heartbeat       whether the edge still answers       wirebytes       bytes on the wire, by the kernel's count
    refused         the exchange of a refused stream     edgehandshake   the TLS handshake, in a thread
    ending          why a connection ended
    orders          what the supervisor wants of all that, and is told: `proxy.supervisor.tunnel` decides
"""
