"""The tunnel provider: its HTTP API, and the ingress document that it stores for a tunnel.

tunnel                                  one tunnel's ingress document, kept as wanted
client > transport                      the API's calls, and how they are sent
envelope > errors                       the shape of its answers, what can go wrong
ingress                                 the ingress document
pacing                                  how often the API may be called
"""
