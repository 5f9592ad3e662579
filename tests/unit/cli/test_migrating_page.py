"""What the page for people from other tools tells them to type is understood."""

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.kafka_names import RENAMED, REPLACED, VALUED
from ottla.cli.main import _parse

PAGE = Path(__file__).parents[3] / "docs" / "migrating.md"


def rows(text):
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("| ") and "---" not in line
    ][1:]


TASKS, _, OPTIONS = PAGE.read_text(encoding="utf-8").partition("Other options of Kafka's scripts")
ROWS = rows(TASKS)
TYPED = [
    command
    for row in ROWS
    for command in re.findall(r"`([^`]+)`", row[1])
    if not command.startswith("--")  # It goes with the command before it.
]


def test_every_row_has_as_many_cells_as_the_head():
    assert len(ROWS) > 25
    assert {len(row) for row in ROWS} == {5}


def test_the_options_that_are_said_to_be_understood_are():
    told = rows(OPTIONS)
    assert {len(row) for row in told} == {3}
    for commands, kafkas, _ in told:
        for command in re.findall(r"`([^`]+)`", commands):
            known = {
                *RENAMED.get(command, ()),
                *REPLACED.get(command, ()),
                *VALUED.get(command, ()),
            }
            assert {each.split()[0] for each in re.findall(r"`([^`]+)`", kafkas)} <= known


@pytest.mark.parametrize("command", TYPED)
def test_what_is_told_to_type_is_understood(command):
    assert _parse(shlex.split(command)).command is not None


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("topic describe --topic t", "topic describe t"),
        (
            "topic create --topic t --partitions 2 --replication-factor 1",
            "topic create t -p 2 -r 1",
        ),
        ("topic delete --topic=t -y", "topic delete t -y"),
        ("consume --topic t --max-messages 3", "consume t -n 3"),
        ("consume --topic t --offset 5", "consume t --from 5"),
        ("produce --topic t -k k", "produce t -k k"),
        ("group describe --group g", "group describe g"),
        ("group describe --all-groups", "group describe --all"),
        ("group reset --group g --to earliest --topic t", "group reset g --to earliest --topic t"),
        ("group offsets delete --group g t:0", "group offsets delete g t:0"),
        ("txn describe --transactional-id x", "txn describe x"),
        ("topic list --command-property client.id=x", "topic list -X client.id=x"),
        ("acl list --topic t", "acl list --topic t"),
    ],
)
def test_names_of_kafkas_options_are_understood(typed, same):
    one, other = (vars(_parse(shlex.split(each))) for each in (typed, same))
    for each in (one, other):
        for name in ("parser", "command"):
            each.pop(name)
    assert one == other
