"""What a connection registers about itself."""

import uuid

import pytest

from proxy.tunnel.identity import FEATURES, ConnectionOptions, client_info, connection_options, mapped_address

CLIENT_ID = uuid.UUID("aaaaaaaa-bbbb-4ccc-9ddd-eeeeeeeeeeee")


@pytest.mark.parametrize(
    ("machine", "arch"),
    [
        ("x86_64", "linux_amd64"),
        ("aarch64", "linux_arm64"),
        ("armv7l", "linux_arm"),
        ("armv6l", "linux_arm"),
        ("i686", "linux_386"),
        ("riscv64", "linux_riscv64"),
    ],
)
def test_the_architecture_is_named_as_the_provider_names_it(machine: str, arch: str) -> None:
    assert arch == client_info(CLIENT_ID, "1", "Linux", machine).arch


def test_client_info_has_the_features_that_are_implemented() -> None:
    client = client_info(CLIENT_ID, "0.4.0", "Linux", "x86_64")

    assert ("allow_remote_config", "serialized_headers") == FEATURES == client.features
    assert (CLIENT_ID.bytes, "0.4.0") == (client.client_id, client.version)


@pytest.mark.parametrize(
    ("text", "hexed"),
    [
        ("10.2.3.4", "00000000000000000000ffff0a020304"),
        ("2001:db8::1", "20010db8000000000000000000000001"),
        ("fe80::1%eth0", "fe800000000000000000000000000001"),
        ("unix", ""),
        ("", ""),
    ],
)
def test_addresses_are_encoded_in_sixteen_bytes(text: str, hexed: str) -> None:
    assert hexed == mapped_address(text).hex()


def test_the_number_of_attempts_is_capped_at_255() -> None:
    client = client_info(CLIENT_ID, "1", "Linux", "x86_64")

    assert ConnectionOptions(client, mapped_address("::1"), False, 0, 3) == connection_options(client, "::1", 3)
    assert 255 == connection_options(client, "::1", 1000).previous_attempts
