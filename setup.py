"""All metadata is in setup.cfg."""

import contextlib
import shutil

from setuptools import setup
from setuptools.command.build import build


class BuildFromNothing(build):
    """All that lies in build/lib is installed. That of another version has packages that hide modules of this one."""

    def run(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.build_lib)
        super().run()


setup(cmdclass={"build": BuildFromNothing})
