"""Boot a machine of its own: a real systemd with the host's programs and nothing else of the host.

    python -m tests.systemd.boot FOLDER        as root, in a mount namespace that nobody else may see

What runs in there has processes, a network and control groups of its own. `/usr` is the host's, `/opt/tunnelgw` is this
checkout with its Python, where the units expect them; all of that is read-only. The rest is empty and lies in memory,
so it is gone with the machine. The machine ends with this process.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import uuid
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from tests.support import netns
from tests.support.process import REPOSITORY
from tests.support.tied import tied

ADDRESS: Final = "192.0.2.1"
"""The machine's address, beside loopback."""
INSIDE: Final = "--inside"
_TIMEOUT_S = 20.0
_UNITS = "systemd/system"
_TAKEN_UNITS = ("*.target", "*.slice", "systemd-journald.service", "systemd-journald*.socket")
"""The host's units that are used: those of udev, sysctl and others would change the kernel that the host shares."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/hostname": "machine\n",
    "etc/machine-id": f"{uuid.uuid4().hex}\n",
    # A Python built for another prefix finds its library by this.
    "etc/ld.so.conf": "/opt/python/lib\ninclude /etc/ld.so.conf.d/*.conf\n",
}


def main() -> int:
    is_inside = sys.argv[1] == INSIDE
    folder = Path(sys.argv[-1])
    if is_inside:
        _become_systemd(folder)
    return _host(folder)


def _host(folder: Path) -> int:
    """Run the machine in a control group of its own, which is removed with it."""
    groups = folder / "groups"
    groups.mkdir()
    _mount("-t", "cgroup2", "cgroup2", str(groups))
    ours = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    home, group = groups / ours.lstrip("/"), groups / ours.lstrip("/") / f"machine-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text("0")
    own = ("--cgroup", "--net", "--pid", "--uts", "--ipc", "--mount", "--propagation=private")
    again = (sys.executable, "-m", __spec__.name, INSIDE, str(folder))
    try:
        with subprocess.Popen(tied(["unshare", *own, "--fork", "--kill-child", *again])) as machine:
            (home / "cgroup.procs").write_text("0")
            return machine.wait()
    finally:
        for each in sorted(group.rglob("*/"), reverse=True):
            each.rmdir()
        group.rmdir()


def _become_systemd(folder: Path) -> None:
    netns.set_up(ADDRESS)
    root = folder / "root"
    root.mkdir()
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root))
    _show_programs(root)
    _show_ours(root / "opt")
    for name in ("etc/systemd/system", "var/lib", "var/log", "root", "home"):
        (root / name).mkdir(parents=True)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    shutil.copytree("/etc/ld.so.conf.d", root / "etc/ld.so.conf.d")
    (root / "var/run").symlink_to("/run")
    _mount_kernel_views(root)

    os.chdir(root)
    (root / "host").mkdir()
    subprocess.run(["pivot_root", ".", "host"], check=True, timeout=_TIMEOUT_S)
    _mount("--make-rprivate", "/host")
    subprocess.run(["umount", "--no-mtab", "--lazy", "/host"], check=True, timeout=_TIMEOUT_S)
    # As container managers leave it: mounts that systemd makes for a unit have to propagate to it.
    _mount("--make-rshared", "/")
    subprocess.run(["ldconfig"], check=True, timeout=_TIMEOUT_S)
    systemd = "/usr/lib/systemd/systemd"
    os.execve(systemd, [systemd, "--unit=multi-user.target", "--log-target=journal"], {"container": "tests"})


def _show_programs(root: Path) -> None:
    for place in (Path("/usr"), *Path("/").glob("*bin"), *Path("/").glob("lib*")):
        if place.is_symlink():
            (root / place.name).symlink_to(place.readlink())
        else:
            _show(place, root / place.name)
    for kind in ("system-generators", "system-environment-generators"):
        if (root / "usr/lib/systemd" / kind).exists():
            _mount("-t", "tmpfs", "tmpfs", str(root / "usr/lib/systemd" / kind))
    units = root / "usr/lib" / _UNITS
    taken = [(unit.name, unit.read_text()) for pattern in _TAKEN_UNITS for unit in units.glob(pattern)]
    _mount("-t", "tmpfs", "tmpfs", str(units))
    for name, text in taken:
        (units / name).write_text(text)
    (units / "sysinit.target.wants").mkdir()
    (units / "sysinit.target.wants/systemd-journald.service").symlink_to(units / "systemd-journald.service")


def _show_ours(opt: Path) -> None:
    """The result of `pip install .` at /opt/tunnelgw, without copies."""
    python = Path("/opt/python") / Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())
    _show(Path(sys.base_prefix), opt / "python")
    _show(Path(sysconfig.get_path("purelib")), opt / "tunnelgw/packages")
    _show(REPOSITORY, opt / "tunnelgw/source")
    programs = opt / "tunnelgw/bin"
    programs.mkdir()
    (programs / "python3").symlink_to(python)
    (opt / "tunnelgw/pyvenv.cfg").write_text(f"home = {python.parent}\n")
    site = opt / "tunnelgw" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    site.mkdir(parents=True)
    (site / "ours.pth").write_text("/opt/tunnelgw/source\n/opt/tunnelgw/packages\n")
    for entry in distribution("tunnelgw").entry_points:
        module, _, function = entry.value.partition(":")
        program = programs / entry.name
        program.write_text(
            f"#!/opt/tunnelgw/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        program.chmod(0o755)


def _mount_kernel_views(root: Path) -> None:
    for name in ("proc", "sys", "run", "tmp", "dev"):
        (root / name).mkdir()
    _mount("-t", "proc", "proc", str(root / "proc"))
    # Settings there would be the host's as well.
    _show(root / "proc/sys", root / "proc/sys")
    _mount("-t", "sysfs", "-o", "ro", "sysfs", str(root / "sys"))
    _mount("-t", "cgroup2", "cgroup2", str(root / "sys/fs/cgroup"))
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root / "run"))
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "tmp"))
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root / "dev"))
    for name in _DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    (root / "dev/fd").symlink_to("/proc/self/fd")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    for name, kind in (("pts", "devpts"), ("shm", "tmpfs")):
        (root / "dev" / name).mkdir()
        _mount("-t", kind, kind, str(root / "dev" / name))


def _show(place: Path, there: Path) -> None:
    there.mkdir(parents=True, exist_ok=True)
    _mount("--rbind", str(place), str(there))
    _mount("-o", "remount,bind,ro", str(there))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", "--no-mtab", *arguments], check=True, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
