"""What tools/generate.py makes of the OpenAPI files beside this package; do not edit."""
