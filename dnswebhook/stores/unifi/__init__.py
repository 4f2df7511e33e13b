"""Records on a UniFi network controller, behind `dnswebhook.stores.base.Store`.

From outside, only `store.UnifiStore` is used, made from `settings.UnifiSettings`. Inside, from top to bottom:

    store                                   which API to use, when to ask again
    check · auto · decision                 findings for a person; detection; what is remembered of it
    v2 · integration · writes               the two APIs as stores; what their writes have in common
    v2rows · integrationrows · targets      rows <-> records, pure, from an array (rowsdecoder)
    client · credentials · retry            one call, complete: sessions, repetition
    replies · transport                     what a reply means; one HTTP exchange
    connections · replyreader               pooled connections; reading a reply
    tls · sockets                           trust; connecting in time
    settings · address                      what a person sets
"""
