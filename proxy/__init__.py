"""The data plane of the tunnel gateway: requests from ports and the tunnel, routed by one document.

__main__ > cli > commands               what a command line starts: a daemon, or an answer for a person
options                                 what can be set
supervisor > control > worker           the process without traffic; how it talks to those with traffic
tunnel                                  the connector to the provider's edge
doors > exchange > backend              a request's way: in, what becomes of it, out
loop · tls                              the event loop and its sockets; certificates
h1 · h2                                 the versions of HTTP, without I/O
routing > document > pattern            which way a request takes, by which document
accesslog · stats                       what is logged and counted
heads · recent                          heads of both versions of HTTP; a cache
"""
