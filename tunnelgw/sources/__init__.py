"""Where objects come from: a Kubernetes API server or a folder of manifests. Both feed one store.

kubernetes · directory                  the sources
store                                   the current objects, and the changes since the last snapshot: for threads
previousspecs > nameddata > settling    whose new spec has to wait; which data is kept; when a change can be taken
behind · absent · unread                what that waits for: kinds whose watch is broken, or whose definition has come;
                                        data that is named
tables                                  what is held
references · scope                      which Secrets and ConfigMaps are kept, and where Secrets are read
writing                                 how the write of a status can end
"""
