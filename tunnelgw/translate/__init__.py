"""Objects into verdicts and documents. Pure: equal input gives equal output, and no input makes it raise.

Everything is a query (`queries`): a function of what it reads and asks, computed again only when that has changed.

    hostnames · selectors · grants · names · protocols · verdicts
                                                used by all others
    remarks > parts                             what is wrong with a part of a route, judged by the document's own rules
    certificates                                Secrets and ConfigMaps into certificates, or why not
    settings > classes > gateways > pools > addresses
                                                whether a Gateway is ours, its settings, its proxy, its doors
    slots > listenertls > drafts > tunnelports > contest > listeners > gatewayverdicts
                                                listeners: their conflicts, each by itself, on the tunnel, against
                                                other Gateways, their conditions
    endpoints · external · backendtls > backends > backendrefs
                                                where routes send requests, or why not
    filters · matches · sessions > rules        what routes do with them
    attach > routes > policies                  a route at its parents, and in the documents; policies of its backends
    encodedparts > proxyconfig > pipeline       documents, verdicts and names of tunnels, as objects change
"""
