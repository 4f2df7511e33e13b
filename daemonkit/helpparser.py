"""An argument parser whose `--help` and `--version` end as other output of a command does if they cannot be written.

argparse ignores every error there, so that an empty file and exit code 0 would be all that a caller sees.
"""

import argparse
import sys
from typing import Any

from daemonkit.standardfiles import printing


class HelpParser(argparse.ArgumentParser):
    """See `standardfiles.printing`."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        with printing(self.prog):
            file.write(message)
