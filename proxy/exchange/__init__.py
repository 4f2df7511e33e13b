"""Exchanges: one request of a client with its response, from the client's head to the last byte either way.

`services` is where doors bring requests and where new tables come in; `client` says what a door and an exchange know
of each other, `proxy.backend.stream` the same of backends. `exchange` stands on `attempting` and `ending`: what is
passed on, what is tried again, how it is over. Pure, with clock and chance as arguments: `forwarding` and `hopbyhop`
(fields), `answers`, `attempts` (rules of retries), `authorization` (what is asked and what comes of it), `calls` (how
gRPC ends), `maxforwards`, `upgrade` (WebSocket), `departure`, `relay` (bodies on their way).
"""
