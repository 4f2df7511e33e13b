"""The commands for people: `tunnelgw-proxy check`, `explain`, `schema`, `edge-ca` and `tunnel-check`.

None needs a daemon, except that `explain --proxy` queries one. Output is formatted on a terminal, plain lines in a
pipe, and for some commands one JSON document with `--json`. Exit code 0: all is well; 1: `check` has found a document
that is refused, no route would serve the request, a step of the tunnel has failed, or the roots are unavailable; 2:
the command could not be carried out as given.

main                                    the command lines
check · schema · edgeca · tunnelcheck   the commands
explain > explainview > report          the largest of them; its results, shown and as values
sources                                 where a document comes from
"""
