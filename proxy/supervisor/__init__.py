"""The supervisor process: takes configurations, binds sockets, keeps workers alive, tells how all of them are.

It serves no traffic. HTTP on the config address (`api`) leads to `configuration`, which validates, and hands what is
good to the `fleet` of workers; `sockets` binds the listeners' ports, `metrics` adds up what the workers count.
"""
