"""Sends out what was translated: documents to proxies, the ingress document to the provider, with receipts for each.

wanted                                  what the last translation wants where
former · departed                       tunnels and proxies that nothing names any more: to be emptied
dispatch                                proxies first, then the provider; collects the receipts
couriers > courier                      one thread for each target: sends the newest parcel until it is there
proxies > configclient                  a proxy as a target, and its config API
tunnels                                 a tunnel's ingress document as a target
means                                   how proxies and the provider are reached
barred                                  a target that cannot be served because something is missing
receipts · targets > credentials        values: how deliveries ended; where they go, with which tokens. Pure
"""
