"""Where objects come from: a Kubernetes API server or a folder of manifests. Both feed one store.

kubernetes · directory                  the sources
store > tables                          the current objects, and the changes since the last snapshot
behind · absent · unread                what the store waits for: kinds whose watch is broken, or whose definition
                                        has come; data that is named
references · scope                      which Secrets and ConfigMaps are kept, and where Secrets are read
writing                                 how the write of a status can end
"""
