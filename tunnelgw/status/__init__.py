"""Verdicts into the statuses that people read: conditions, entries, and what stays because others own it."""
