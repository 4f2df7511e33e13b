"""Commands for people: what would be accepted, what would happen to a request, what would change, how things are.

main      command lines
inputs    the objects, read once: from a folder of manifests, or an API server (listing)
token     the token of the shared proxies
judge     translation -> rows of a table (pure)
show      rows on a terminal, in a pipe, as JSON
check · explain · status · diff
"""
