"""What the page for people from other tools tells them to type is understood."""

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.main import _parse

PAGE = Path(__file__).parents[3] / "docs" / "migrating.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "---" not in line
][1:]
TYPED = [
    command
    for row in ROWS
    for command in re.findall(r"`([^`]+)`", row[1])
    if not command.startswith("--")  # It goes with the command before it.
]


def test_every_row_has_as_many_cells_as_the_head():
    assert len(ROWS) > 25
    assert {len(row) for row in ROWS} == {5}


@pytest.mark.parametrize("command", TYPED)
def test_what_is_told_to_type_is_understood(command):
    assert _parse(shlex.split(command)).command is not None
