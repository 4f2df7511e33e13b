"""The daemon's APIs as OpenAPI 3.0 files, and the structs that `make generate` makes of the webhook's."""
