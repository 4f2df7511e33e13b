"""What `make demo` runs, and files to copy from; never installed."""
