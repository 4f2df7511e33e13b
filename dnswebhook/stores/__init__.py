"""Where records are held. Everything above this package sees only `Store`."""
