"""Regular expressions whose time and memory are known before the first request: parse, build a table, run it.

`automaton` turns a pattern of the dialect that `syntax` describes into a table with one row for each state. Matching
then takes one look-up per byte, whatever the pattern and the value; a pattern whose table would be large is refused
when it is read. So neither a route's author nor a client can stall the proxy.
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
