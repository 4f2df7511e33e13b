"""What objects may look like: types, limits, defaults and rules of Gateway API's and our own CRDs, by kind.

    kinds       every kind with its versions and its shape
    routes · filters · gateways · policies · own     the shapes
    common      names, references and the like, which they share
    shapes      what shapes are made of

A test submits the same examples to the real API server; both must accept and refuse the same ones.
"""
