"""Doors: where requests come in. Each turns the bytes of its connections into exchanges and back.

A worker needs only `doors`. The tunnel builds its connections to the edge on `h2connection` directly. From top to
bottom:

    doors > door                                all doors of a worker; one, with the listeners behind it
    registry                                    all client connections, and which one makes room
    acceptor > synfilter                        a listening socket, and its end
    introduction > proxyheader · networks       the PROXY header of a load balancer, and from whom one is taken
    greeting > clienthello · tls                the start of a TLS connection, and the certificates for it
    peeking                                     what both look at before they decide
    h1connection > h1stream                     a client's connection, and its side of an exchange: HTTP/1.1
    h2connection > h2stream · turns · rests     HTTP/2: whose turn it is to send; bodies that nobody wants any more
    misdirected · refusals · lingeringclose     requests for another listener; answers without an exchange; their end
    member · terms                              what a door and its connections share: an interface, and limits
"""
