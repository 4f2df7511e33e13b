"""The supervisor process: accepts configurations, binds sockets, keeps workers alive, and reports health and metrics.

It serves no traffic. The HTTP API on the config address (`api`) passes documents to `configuration`, which validates
them and deploys the valid ones to the `fleet` of workers; `keeping` writes the loaded one (`loaded`) to the disk,
`sockets` binds the listeners' ports, and `metrics` adds up the workers' counters.
"""
