"""How a group and its members are shown on a terminal that is too narrow for one table."""

import pytest

from ottla.cli import group as command
from ottla.cli.output import Format
from ottla.client.wire.group_description import GroupDescription, MemberDescription
from ottla.ids import TopicPartition

MEMBER = "rdkafka-a68877ae-b9b3-4c83-82b6-ec31461f3e5d"


@pytest.fixture
def terminal(monkeypatch):
    def be(columns):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))

    return be


def described(name):
    partitions = tuple(TopicPartition("orders", each) for each in (0, 1))
    member = MemberDescription(MEMBER, None, "app", "127.0.0.1", partitions)
    group = GroupDescription(
        group=name,
        state="Stable",
        type="classic",
        protocol_type="consumer",
        assignor="range",
        coordinator=1,
        members=(member,),
    )
    rows = [
        {
            "topic": "orders",
            "partition": each,
            "committed": 5,
            "end": 7,
            "lag": 2,
            "member": MEMBER,
            "host": "127.0.0.1",
            "note": "",
        }
        for each in (0, 1)
    ]
    return group, rows


def test_members_stand_above_a_table_that_they_are_too_long_for(terminal, capsys):
    terminal(80)
    command._write_description(*described("live"), Format.TABLE, header=True)
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "TOPIC   PARTITION  COMMITTED  END  LAG"
    assert f"  {MEMBER} at 127.0.0.1 has orders-0, orders-1\n" in said.err
    terminal(120)
    command._write_description(*described("live"), Format.TABLE, header=True)
    said = capsys.readouterr()
    assert "MEMBER" in said.out
    assert MEMBER not in said.err


def test_several_groups_stand_below_each_other_on_a_terminal(terminal, capsys):
    terminal(80)
    command._write_all([described("one"), described("two")], Format.TABLE, header=True)
    said = capsys.readouterr()
    assert said.out.count("TOPIC ") == 2
    assert [line.split()[0] for line in said.err.splitlines() if "Stable" in line] == ["one", "two"]


def test_scripts_get_the_group_in_each_row(capsys):
    command._write_all([described("one"), described("two")], Format.TSV, header=True)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split("\t")[:2] == ["group", "topic"]
    assert [row.split("\t")[0] for row in rows] == ["one", "one", "two", "two"]


def test_no_group_at_all_says_what_to_type(capsys):
    command._write_all([], Format.TSV, header=False)
    assert "ottla consume TOPIC --group NAME" in capsys.readouterr().err
