"""Translates objects into verdicts and documents. Pure: equal input gives equal output, and no input makes it raise.

Everything is a query (`queries`): a function of what it reads and asks, evaluated again only when that has changed.

    hostnames · selectors · grants · names · protocols · verdicts
                                                used by all others
    remarks > parts                             problems of a part of a route, judged by the document's own rules
    certificates                                certificates from Secrets and ConfigMaps, or why there are none
    settings > classes > gateways > pools > addresses
                                                whether a Gateway is ours, its settings, its proxy, its doors
    slots > listenertls > drafts > tunnelports > contest > listeners > gatewayverdicts
                                                listeners: their conflicts, each by itself, on the tunnel, against
                                                other Gateways, their conditions
    endpoints · external · backendtls > backends > backendrefs
                                                where routes send requests, or why nowhere
    filters · matches · sessions > rules        what routes do with requests
    attach > routes > policies                  a route at its parents and in the documents; policies of its backends
    encodedparts > proxyconfig > pipeline       documents, verdicts and names of tunnels, as objects change
"""
