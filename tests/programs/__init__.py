"""The programs that the tests drive, built from their published modules."""
