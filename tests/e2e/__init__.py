"""Tests of whole processes: what runs here is what operators run."""
