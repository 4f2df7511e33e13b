"""The stores that hold records. Everything above this package sees only `Store`."""
