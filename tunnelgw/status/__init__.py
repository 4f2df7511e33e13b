"""Verdicts into statuses: conditions, entries, and what stays because others own it."""
