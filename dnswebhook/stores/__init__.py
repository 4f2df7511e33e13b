"""The stores that hold records. Everything above this package sees only `Store`.

unifi · embedded                        the stores: a UniFi controller, an SQLite file
observed                                times their calls
base                                    `Store`, and what a check of one finds
"""
