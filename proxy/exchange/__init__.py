"""Exchanges: a client's request and its response, from the client's head to the last byte in either direction.

`services` is where doors bring requests and where new tables come in. `client` is the interface between doors and
exchanges, `proxy.backend.stream` that between exchanges and backends. `exchange` builds on `attempting` and `ending`:
what is passed on, what is tried again, how an exchange ends. Beside it, `asking` puts the question of authorization to
its server, and `mirrors` sends copies elsewhere. `shared` is what all exchanges of a worker have, `terms` the settings
that one keeps, `timers` its limits of time, `record` what the access log is told. `untaken` limits what all exchanges
hold for their peers.

Pure, with clock and randomness as arguments: `forwarding` and `hopbyhop` (fields), `answers`, `attempts` (rules of
retries), `authorization` (the question and what follows from the answer), `backlog` (what waits, and who gives way),
`calls` (how gRPC ends), `maxforwards`, `upgrade` (WebSocket), `departure`, `relay` (bodies in transit).
"""
