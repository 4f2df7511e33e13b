from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import sharing

ROOT = Path(sharing.__file__).parents[2]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))


@pytest.mark.parametrize("start", [*sorted(sharing._LONG), *sharing._WITH_API_SERVER])
def test_every_name_is_that_of_a_file(start: str) -> None:
    assert any(file.startswith(start) for file in FILES)


def test_the_files_of_a_unit_are_beside_each_other() -> None:
    units = [sharing.unit_of(file) for file in sorted(FILES, key=sharing.place_of)]

    assert len(set(units)) == 1 + sum(before != after for before, after in pairwise(units))


def test_a_long_file_is_its_own_unit_and_in_the_first_half() -> None:
    places = {file: sharing.place_of(file)[0] for file in FILES}

    assert all(sharing.unit_of(file) == file and places[file] < 0.5 for file in sharing._LONG)
