"""Records on a UniFi network controller, behind `dnswebhook.stores.base.Store`.

Other packages use only `store.UnifiStore`, created from `settings.UnifiSettings`. The modules, from top to bottom:

    store                                   which API to use, when to ask again
    check · auto · decision                 findings for a person; detection; its remembered result
    v2 · integration · writes               the two APIs as stores; what their writes have in common
    v2rows · integrationrows · targets      rows <-> records, pure, from an array (rowsdecoder)
    client · credentials · retry            one complete call: sessions, repetition
    replies · transport                     what a reply means; one HTTP exchange
    connections · replyreader               pooled connections; reading a reply
    tls · sockets                           trust; connecting in time
    settings · address                      what the user sets
"""
