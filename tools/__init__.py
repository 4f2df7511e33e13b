"""Commands for developers of this project; never installed."""
