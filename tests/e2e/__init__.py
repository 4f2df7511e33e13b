"""Tests of whole processes, as operators run them."""
