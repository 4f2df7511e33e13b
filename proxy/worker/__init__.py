"""A worker process: one loop that serves requests by the latest document's table, controlled by its supervisor.

The supervisor starts it with the hidden command `tunnelgw-proxy worker --fd N`, where N is its end of the control
channel. It keeps nothing on disk, and ends when it is drained or when the supervisor is gone.

main > worker                           from the command line to the loop; the control channel
dataplane · swap                        doors, exchanges and backends put together; the next table, in slices
departed                                counts of routes, backends and doors that have left it
freeheap · sparefiles · orphans         memory returned, descriptors reserved, an end without a supervisor
"""
