"""The tunnel: connections that we dial to the provider's edge and register there, and what the edge sends over them.

The protocol, without I/O:

    token           our credentials                      identity        what we tell the edge about ourselves
    discovery       where the edge is                    addresses       which of its addresses each connection dials
    retry           when to dial again                   controlstream   registering and unregistering a connection
    streams         requests as the edge sends them      responses       responses as the edge wants them
    remoteconfig    configurations that it pushes        failures        what can go wrong, as a closed set
    packetsize      whether to dial with smaller packets

`controlstream` is built on `registration` (the interface's structs), `rpc` (the envelope) and `capnp` (the encoding);
it reports `controlevents`, and raises `errors` if its caller makes a mistake.
None of these use sockets, clocks, random numbers, threads or logs.

At work, in a worker's loop:

    links           all connections of the worker        link            one connection, from its dial to its end
    dialling        TCP and TLS                          edgehttp        HTTP/2 in the server role, for one peer
    control         carries the control stream           pushes          carries pushed configurations
    heartbeat       whether the edge still answers       wirebytes       bytes on the wire, as counted by the kernel
    refused         the exchange of a refused stream     edgehandshake   the TLS handshake, in a thread
    ending          why a connection ended
    orders          messages between the supervisor, which decides (`proxy.supervisor.tunnel`), and `links`
"""
