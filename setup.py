"""All metadata is in setup.cfg."""

import contextlib
import shutil

from setuptools import setup
from setuptools.command.build import build


class BuildFromNothing(build):
    """All that lies in build/lib is installed. That of another version has packages that hide modules of this one.

    A folder that `--build-lib` names is somebody's own, and may hold more.
    """

    def run(self) -> None:
        if self.build_lib in (self.build_purelib, self.build_platlib):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.build_lib)
        super().run()


setup(cmdclass={"build": BuildFromNothing})
