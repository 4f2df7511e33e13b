"""Fixtures for tests of whole processes."""

from tests.support.kube_fixtures import external_dns_program, kube, kube_api, scene, stage, store

__all__ = ["external_dns_program", "kube", "kube_api", "scene", "stage", "store"]
