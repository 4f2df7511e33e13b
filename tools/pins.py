"""Writes requirements-dev.txt: every package needed to run and to develop, in the newest version that fits.

    python -m tools.pins

It fills a fresh virtual environment from setup.cfg and requirements-dev.in, and lists what was installed.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Made by `make pins` from setup.cfg and requirements-dev.in; do not edit.\n"


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        pip = [str(Path(directory) / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", ROOT, "-r", ROOT / "requirements-dev.in"], check=True)
        frozen = subprocess.run([*pip, "freeze", "--all"], check=True, capture_output=True, text=True).stdout
    lines = [line for line in frozen.splitlines() if not line.startswith(("tunnelgw", "pip=="))]
    (ROOT / "requirements-dev.txt").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote requirements-dev.txt: {len(lines)} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
