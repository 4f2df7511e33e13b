"""The systemd units, parsed as systemd does."""

import configparser
from typing import Final

from tests.support.process import REPOSITORY

SYSTEMD: Final = REPOSITORY / "systemd"


class _Unit(configparser.RawConfigParser):
    """Keys keep their case."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def service(name: str) -> configparser.SectionProxy:
    parser = _Unit(strict=False)
    parser.read(SYSTEMD / f"{name}.service", encoding="utf-8")
    return parser["Service"]
