"""The Gateway API controller: objects in, the proxy's document, the tunnel's hostnames and statuses out.

__main__ > cli > daemon · commands      what a command line starts: the daemon, or an answer for a person
options · metrics                       what can be set, what is counted
reconcile                               the one worker, turn by turn
means                                   which proxies and provider, from the options
origins > sources                       where objects come from, and the store that holds them
translate > features · openssl          what objects mean, as the proxy's documents; what is served; certificates tried
deliver > provider                      documents to proxies, hostnames to the tunnel's provider
report > status                         what is said to people, and in which form
model                                   the objects
"""
