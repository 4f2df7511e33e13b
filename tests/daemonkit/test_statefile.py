"""Small files of a state directory: written whole or not at all, and readable by their owner only."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from daemonkit.statefile import remedy, replace_file
from tests.support.descriptors import open_below


def test_a_file_is_replaced_whole_and_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known.json"

    replace_file(path, b"a longer first content")
    replace_file(path, b"second")

    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [found.name for found in path.parent.iterdir()] == ["known.json"]


def test_a_replacement_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    taken = tmp_path / "known.json"
    taken.mkdir()

    with pytest.raises(OSError, match=r"known\.json"):
        replace_file(taken, b"content")

    assert [path.name for path in tmp_path.iterdir()] == ["known.json"]


def test_replacing_a_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    for _ in range(20):
        replace_file(tmp_path / "known.json", b"another")

    assert not open_below(tmp_path)


def test_content_and_name_are_on_the_disk_once_a_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "known.json", list[tuple[str, int, bool]](), os.fsync

    def note(descriptor: int) -> None:
        size_bytes = os.fstat(descriptor).st_size
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, size_bytes, path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)

    replace_file(path, b"content")

    (temporary, size_bytes, had_its_name), (directory, _, has_its_name) = synced
    assert temporary.startswith(".known.json.")
    assert (size_bytes, had_its_name) == (len(b"content"), False)
    assert (directory, has_its_name) == (tmp_path.name, True)


_KILLED_WHILE_IT_WRITES = """
import os, pathlib, signal, sys
from daemonkit.statefile import replace_file
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
replace_file(pathlib.Path(sys.argv[1]), b"half")
"""


def test_an_old_temporary_file_of_a_killed_process_is_removed_and_a_recent_one_stays(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "known.json", tmp_path / ".known.jsonl.kept"
    replace_file(path, b"first")
    other.touch()
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", _KILLED_WHILE_IT_WRITES, str(path)], timeout=60, check=False)
        assert killed.returncode == -signal.SIGKILL
    old, new = (left for left in tmp_path.iterdir() if left not in (path, other))
    for each in (old, other):
        os.utime(each, (0, 0))

    replace_file(path, b"second")

    assert path.read_bytes() == b"second"
    assert {*tmp_path.iterdir()} == {path, other, new}


def test_where_access_is_denied_the_remedy_names_the_user_that_needs_it(tmp_path: Path) -> None:
    # Privileges are dropped after the imports: another user may have no access to this interpreter.
    code = (
        "import os, sys; from pathlib import Path; from daemonkit.statefile import remedy, replace_file\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: replace_file(Path(sys.argv[1], 'known.json'), b'content')\n"
        "except OSError as error: print(os.geteuid(), remedy(error, '--state-dir'))"
    )
    tmp_path.chmod(0o500)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    tmp_path.chmod(0o700)

    uid, _, said = done.stdout.partition(" ")
    want = f"give this user (uid {uid}) write access to the directory and its files, or choose another --state-dir\n"
    assert said == want


def test_where_a_limit_of_the_process_is_too_low_for_the_file_the_remedy_names_it(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from daemonkit.statefile import remedy, replace_file\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))\n"
        "try: replace_file(Path(sys.argv[1], 'known.json'), b'content')\n"
        "except OSError as error: sys.exit(remedy(error, '--state-dir'))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.stderr == "raise the limit of the size of files (ulimit -f; systemd: LimitFSIZE=)\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (FileNotFoundError(), "no directory can be made there: choose another --state-dir"),
        (NotADirectoryError(), "no directory can be made there: choose another --state-dir"),
        (OSError(errno.EFBIG, "File too large"), "raise the limit of the size of files"),
        (OSError(errno.ENOSPC, "No space left on device"), "is the disk full, or the directory read-only?"),
        (OSError(errno.EROFS, "Read-only file system"), "is the disk full, or the directory read-only?"),
        (ValueError("database is malformed"), "is the disk full, or the directory read-only?"),
    ],
)
def test_the_remedy_depends_on_the_cause(error: Exception, wanted: str) -> None:
    assert remedy(error, "--state-dir").startswith(wanted)
