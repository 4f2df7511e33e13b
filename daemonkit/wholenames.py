"""Host names to which the resolver must not append a search domain."""

from pathlib import Path
from typing import Final

HOSTS_FILE: Final = Path("/etc/hosts")


def whole_name(host: str) -> str:
    """`host` with a trailing dot: in a Pod, search domains are tried first, and a wildcard in one matches every name.

    A name in the hosts file is returned unchanged: with a dot it would not be found there.
    """
    try:
        lines = HOSTS_FILE.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    pinned = {name.lower() for line in lines for name in line.partition("#")[0].split()[1:]}
    return host if host.lower() in pinned else f"{host}."
