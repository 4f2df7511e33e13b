"""Regular expressions whose time and memory are known before the first request: parse, build a table, run it.

`automaton` turns text of the dialect (`syntax` describes it) into a table with one row for each state. Matching then
is one look-up for each byte, whatever the pattern and the value are; a pattern whose table would be large is refused
when it is read. So neither a route's author nor a client can make the proxy stand still.
"""

from proxy.pattern.automaton import MAX_ENTRIES, MAX_STATES, Automaton, TooManyStates, automaton
from proxy.pattern.syntax import MAX_LENGTH, MAX_POSITIONS, PatternError

__all__ = [
    "MAX_ENTRIES",
    "MAX_LENGTH",
    "MAX_POSITIONS",
    "MAX_STATES",
    "Automaton",
    "PatternError",
    "TooManyStates",
    "automaton",
]
