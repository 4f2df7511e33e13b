"""Reports to people: statuses with the results of deliveries, Events, and log lines about ingress documents.

reporter                                which statuses are due
updates > situation                     what they say about deliveries; what a turn of the reconciler has found
rush · holdback · firstwords            why one waits: many edits, its documents, a leader that is new. Pure
deliveries                              receipts in words. Pure
statusqueue                             the threads that write statuses
fulllists                               lists in statuses without room for an entry of ours
events · ingress                        Events; what others have in ingress documents
"""
