"""Backends: connections to them, which of their addresses is asked, and what becomes of those that fail."""
