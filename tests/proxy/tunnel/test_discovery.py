"""The DNS queries of the discovery, and the use of their answers."""

import pytest

from proxy.tunnel.addresses import EdgeAddress, IpVersion
from proxy.tunnel.discovery import (
    DiscoveryFailed,
    SrvTarget,
    check_version,
    region_targets,
    resolved_regions,
    srv_name,
)

ONE = SrvTarget("region1.v2.argotunnel.com", 7844)
TWO = SrvTarget("region2.v2.argotunnel.com", 7845)


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        ("", "_v2-origintunneld._tcp.argotunnel.com"),
        ("us", "_us-v2-origintunneld._tcp.argotunnel.com"),
        ("FED", "_fed-v2-origintunneld._tcp.argotunnel.com"),
    ],
)
def test_the_endpoint_is_part_of_the_srv_name(endpoint: str, name: str) -> None:
    assert name == srv_name(endpoint)


def test_the_first_two_hosts_are_the_regions() -> None:
    assert (ONE, TWO) == region_targets("x", [ONE, TWO, SrvTarget("third", 1)])
    assert (ONE,) == region_targets("x", [ONE])


def test_an_srv_answer_without_hosts_is_a_failure_that_says_what_to_do() -> None:
    with pytest.raises(
        DiscoveryFailed, match=r"SRV _x names no host, want 2; alternatively, set addresses with --edge"
    ):
        region_targets("_x", [])


def test_the_root_as_srv_target_means_no_host() -> None:
    nobody = SrvTarget("", 0)
    with pytest.raises(DiscoveryFailed, match="SRV _x names no host"):
        region_targets("_x", [nobody])
    assert region_targets("_x", [nobody, ONE, TWO]) == (ONE, TWO)


def test_each_region_has_the_addresses_of_its_host_and_the_port_of_its_record() -> None:
    regions = resolved_regions([ONE, TWO], {ONE.host: ["192.0.2.1", "2001:db8::1"], TWO.host: ["192.0.2.9"]})

    assert (
        (EdgeAddress("192.0.2.1", 7844), EdgeAddress("2001:db8::1", 7844)),
        (EdgeAddress("192.0.2.9", 7845),),
    ) == regions


def test_one_region_may_have_no_addresses() -> None:
    assert ((), (EdgeAddress("192.0.2.9", 7845),)) == resolved_regions([ONE, TWO], {TWO.host: ["192.0.2.9"]})


def test_no_address_at_all_is_a_failure() -> None:
    with pytest.raises(DiscoveryFailed, match=r"no address for region1.v2.argotunnel.com, region2"):
        resolved_regions([ONE, TWO], {ONE.host: []})


V4, V6 = EdgeAddress("192.0.2.1", 7844), EdgeAddress("2001:db8::1", 7844)


@pytest.mark.parametrize("version", IpVersion)
def test_regions_with_any_address_of_the_ip_version_are_accepted(version: IpVersion) -> None:
    for regions in ([[V4, V6], []], [[V4], [V6]], [[], [V6, V4]]):
        check_version(regions, version)


@pytest.mark.parametrize(("version", "address"), [(IpVersion.IPV4, V6), (IpVersion.IPV6, V4)])
def test_no_address_of_the_ip_version_is_a_failure(version: IpVersion, address: EdgeAddress) -> None:
    with pytest.raises(DiscoveryFailed, match=rf"no IPv{version} address .*{address.ip}.*--edge-ip-version {version}"):
        check_version([[address], []], version)
