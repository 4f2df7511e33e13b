"""Turns verdicts into statuses: conditions, entries, and whatever stays because others own it.

compose > objects                       a whole status, and those of its fields that are ours
entries                                 lists that several controllers share
conditions                              conditions by type, merged
"""
