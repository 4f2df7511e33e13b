"""Turns verdicts into statuses: conditions, entries, and whatever stays because others own it."""
