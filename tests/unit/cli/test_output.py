import io
import json

import pytest

from ottla.cli import output
from ottla.cli.output import (
    Format,
    RowWriter,
    age_text,
    blocks,
    table,
    utc_text,
    write_object,
    write_rows,
)

ROWS = [
    {"name": "a\tb", "count": 12345, "on": True, "isr": [1, 2], "none": None},
    {"name": "c", "count": 6, "on": False, "isr": [], "none": None},
]
COLUMNS = ("name", "count", "on", "isr", "none")


def printed(capsys, format_):
    write_rows(ROWS, COLUMNS, format_)
    return capsys.readouterr().out


def test_json_and_jsonl_are_the_rows(capsys):
    assert json.loads(printed(capsys, Format.JSON)) == ROWS
    lines = printed(capsys, Format.JSONL).splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_tsv_keeps_one_record_a_line(capsys):
    rows = "a\\tb\t12345\ttrue\t1,2\t\nc\t6\tfalse\t\t\n"
    assert printed(capsys, Format.TSV) == "name\tcount\ton\tisr\tnone\n" + rows
    write_rows(ROWS, COLUMNS, Format.TSV, header=False)
    assert capsys.readouterr().out == rows


NAME = "a\x1b]0;title\x07\r\x9b2J\x7f\u202eb\n"


@pytest.mark.parametrize("format_", Format)
def test_a_name_does_nothing_to_the_terminal_that_shows_it(capsys, format_):
    row = {"id": NAME, "members": [NAME], "labels": {NAME: NAME}}
    write_rows([row], tuple(row), format_)
    write_object(row, format_)
    with RowWriter(format_) as writer:
        writer.write(row, tuple(row))
        writer.line(NAME)
    output.note(NAME)
    shown = capsys.readouterr()
    assert all(each.isprintable() for each in (shown.out + shown.err).replace("\t", "").split("\n"))
    if format_ is Format.JSONL:
        assert [json.loads(line) for line in shown.out.splitlines()[:3]] == [row] * 3


def test_a_name_does_nothing_to_the_terminal_when_it_is_asked_about(monkeypatch, capsys):
    from ottla.cli import consent
    from ottla.cli.failure import Failure, leave

    class Person(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Person("no\n"))
    with pytest.raises(Failure, match="not done"):
        consent.ask(f"delete {NAME}? ")
    with pytest.raises(SystemExit):
        leave(Failure(f"no {NAME}", why=NAME))
    shown = capsys.readouterr().err
    assert all(each.isprintable() for each in shown.split("\n"))


def test_rows_of_another_kind_get_their_own_head(capsys):
    with RowWriter(Format.TSV) as writer:
        for row in ({"a": 1}, {"a": 2}, {"b": 3}):
            writer.write(row, tuple(row))
    assert capsys.readouterr().out == "a\n1\n2\nb\n3\n"


def test_numbers_that_are_names_have_no_separators():
    rows = [{"producer_id": 1001, "epoch": 1000, "partition": 5000, "end": 1000}]
    assert table(rows, tuple(rows[0])).splitlines()[1].split() == ["1001", "1000", "5000", "1,000"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (850, "850ms"), (1_234, "1s200ms"), (192_000, "3m12s"), (187_200_000, "2d4h")],
)
def test_ages_have_two_units_at_most(milliseconds, text):
    assert age_text(milliseconds) == text


def test_times_are_iso():
    assert utc_text(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert utc_text(1 << 62) == f"{1 << 62} ms"


def test_a_row_that_does_not_fit_becomes_lines():
    assert blocks([{"a_b": 1, "c": "x"}], ("a_b", "c")).splitlines() == ["A B  1", "C    x"]


def test_a_table_is_aligned(capsys):
    assert printed(capsys, Format.TABLE).splitlines() == [
        "NAME   COUNT  ON   ISR  NONE",
        "a\\tb  12,345  yes  1,2  -",
        "c          6  no        -",
    ]


def test_yaml_nests_lists_and_mappings(capsys):
    value = {"a.b": "x: y", "rows": [{"n": 1, "isr": [1]}], "empty": {}, "deep": {"list": ["s"]}}
    write_object(value, Format.YAML)
    assert capsys.readouterr().out.splitlines() == [
        'a.b: "x: y"',
        "rows:",
        "  - n: 1",
        "    isr:",
        "      - 1",
        "empty: {}",
        "deep:",
        "  list:",
        '    - "s"',
    ]


def test_nothing_is_valid_in_every_format(capsys):
    write_rows([], COLUMNS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == []
    write_rows([], COLUMNS, Format.YAML)
    assert capsys.readouterr().out == "[]\n"
    write_rows([], COLUMNS, Format.TABLE)
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_tsv_and_a_terminal_a_table(monkeypatch):
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: False, raising=False)
    assert output.chosen(None) is Format.TSV
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True, raising=False)
    assert output.chosen(None) is Format.TABLE
    assert output.chosen("json") is Format.JSON


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert output.bold("x") == "x"
    monkeypatch.setenv("TERM", "xterm")
    assert output.bold("x") == "\x1b[1mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.bold("x") == "x"


def test_wide_characters_do_not_bend_a_table():
    rows = [{"group": "分析グループ", "lag": 5}, {"group": "e\u0301t\u00e9", "lag": 12}]
    head, wide, combined = table(rows, ("group", "lag")).splitlines()
    assert head == "GROUP         LAG"
    assert wide == "分析グループ    5"
    assert combined == "e\u0301t\u00e9" + " " * 12 + "12"
    assert [output.cells(each) for each in (head, wide, combined)] == [17, 17, 17]


def test_a_table_is_as_wide_as_its_characters_are(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    write_rows([{"group": "組" * 25, "state": "Empty"}], ("group", "state"), Format.TABLE)
    assert capsys.readouterr().out.splitlines()[1] == f"{'組' * 25}  Empty"
    write_rows([{"group": "組" * 28, "state": "Empty"}], ("group", "state"), Format.TABLE)
    assert capsys.readouterr().out.splitlines()[1] == "組" * 28  # A line of its own.


NAMES = [{"name": "orders", "partitions": 3}, {"name": "n" * 70, "partitions": 12}]


def test_a_table_that_nearly_fits_stands_closer():
    columns = tuple(f"column_{each}" for each in "abc")
    rows = [dict.fromkeys(columns, 1)]
    assert output.fitted(rows, columns, 34) == table(rows, columns)
    assert output.fitted(rows, columns, 33).splitlines()[0] == "COLUMN A  COLUMN B  COLUMN C"
    assert output.fitted(rows, columns, 26).splitlines()[0] == "COLUMN A COLUMN B COLUMN C"
    assert output.fitted(rows, columns, 25) == blocks(rows, columns)


def test_one_long_name_does_not_take_a_table_apart():
    text = output.fitted(NAMES, ("name", "partitions"), 60)
    head, short, long, rest = text.splitlines()
    assert head.split() == ["NAME", "PARTITIONS"]
    assert (short.split(), long, rest.split()) == (["orders", "3"], "n" * 70, ["12"])
    assert len(head) == len(short) == len(rest) <= 60
    assert output.fitted(NAMES, ("name", "partitions"), 82) == table(NAMES, ("name", "partitions"))


def test_numbers_stand_to_the_right_though_the_first_is_missing():
    text = table([{"lag": None}, {"lag": 1200}], ("lag",))
    assert text == "  LAG\n    -\n1,200\n"


def test_what_is_printed_does_not_stand_behind_progress(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for say in (
        lambda: output.note("said"),
        lambda: output.answer("said"),
        lambda: write_rows(ROWS, COLUMNS, Format.TSV),
    ):
        output.progress("1 of 7")
        say()
        assert capsys.readouterr().err.startswith("\r\x1b[K1 of 7\r\x1b[K")
        say()
        assert "\x1b[K" not in capsys.readouterr().err, "it is cleared once"


def test_a_table_leaves_out_notes_where_there_are_none(capsys):
    rows = [{"topic": "t", "note": ""}]
    write_rows(rows, ("topic", "note"), Format.TABLE)
    assert capsys.readouterr().out == "TOPIC\nt\n"
    write_rows(rows, ("topic", "note"), Format.TSV)
    assert capsys.readouterr().out == "topic\tnote\nt\t\n", "a script finds the same columns"


def test_yaml_says_what_json_says_whatever_a_name_is():
    yaml = pytest.importorskip("yaml")
    odd = 'g\n\x1b[31m\t\u202e\U000f0000\U000e0001\x85\x7f\ufeff\\ é€😀"'
    words = ("null", "true", "No", "1e5", "123", "0x10", "", "~", "-", "a b", "a: b", "#", "x.y-z")
    rows = [{"name": each, "by_name": {each: 1, "n": [each]}} for each in (*words, odd)]
    assert yaml.safe_load(output.yaml_text(rows)) == rows
    assert not [each for each in output.yaml_text(rows) if not each.isprintable() and each != "\n"]
