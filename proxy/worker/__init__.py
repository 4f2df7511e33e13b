"""A worker process: one loop that serves requests by the table of the last document, told what to do by its supervisor.

Started by the supervisor with the hidden command `tunnelgw-proxy worker --fd N`, where N is its end of the control
channel. It keeps nothing on disk, and ends when it was drained or when the supervisor has gone.
"""
