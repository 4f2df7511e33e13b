"""The commands that people run: `tunnelgw-proxy check`, `explain` and `schema`. No daemon is needed for them.

On a terminal they draw; in a pipe they print plain lines; with `--json` one JSON document. Exit code 0: all is well;
1: the document is refused, or nothing would serve the request; 2: the question itself was wrong.
"""
