"""Commands for people who develop this project; never installed."""
