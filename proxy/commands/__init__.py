"""The commands that people run: `tunnelgw-proxy check`, `explain`, `schema`, `edge-ca` and `tunnel-check`.

None needs a daemon, but `explain --proxy` asks one. On a terminal they draw; in a pipe they print plain lines; some
print one JSON document with `--json`. Exit code 0: all is well; 1: `check` has found a document that is refused,
nothing would serve the request, a step of the tunnel failed, or the roots cannot be had; 2: the question itself was
wrong.
"""
