"""Objects into verdicts and documents. Pure: equal input gives equal output, and no input makes it raise.

Everything is a query (`queries`): a function of what it reads and asks, computed again only when that has changed.

    hostnames · selectors · grants · names      words that all others use
    certificates                                Secrets and ConfigMaps into certificates, or why not
    classes · gateways · pools · addresses      whose Gateway, which proxy, which doors
    slots > listenertls > drafts > contest > listeners > gatewayverdicts
                                                listeners: conflicts, each by itself, against other Gateways, as told
    endpoints · backendtls · backends · policies · filters · matches · rules
                                                what routes do with requests, and where they send them
    attach > routes                             a route at its parents, and in the documents
    proxyconfig > pipeline                      documents, verdicts and names of tunnels, as objects change
"""
