"""Measurements of the daemons beside their peers; each package below is one command."""
