"""The official conformance suite of Gateway API, run against the real controller and proxy on one machine.

    python -m tests.conformance [--core | --test NAME] [--out DIR] [-- FLAGS OF THE SUITE]

One new network and process namespace holds everything: etcd, kube-apiserver, a stand-in for the node with its Pods
(`suite/node`), proxy, controller, and the suite. Every address of the ranges below is local in there, nothing leads
out of it, and whatever happens, nothing in it outlives the command.
"""
