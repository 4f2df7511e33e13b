"""The supervisor process: accepts configurations, binds sockets, keeps workers alive, and reports health and metrics.

It serves no traffic. From top to bottom:

    main                                        assembles everything
    api · metrics · tunnelmetrics               the config address: documents in, health and numbers out
    shutdowndelay                               stops, after load balancers have had time to notice
    configuration > certificates · sockets      checks a document, binds its ports, deploys it to the fleet
    loaded · keeping > state                    the document in use, and its copy on the disk
    tunnel > places · tokenfile                 when, where and from which worker the edge is dialled
    edgesearch > edgefinder > srvquestions      the edge's addresses,
               > edgetrust                      and the roots to trust for it
    fleet > slot > delivery > deployment        all workers; one; what it is handed; what it should serve
    firstworkers > workerprocess                a worker's process, the first ones started before all else is imported
    totals · departed                           counts of successive processes; series that nobody counts any more
    limits · jit                                open files; whether workers can use Python's JIT
"""
