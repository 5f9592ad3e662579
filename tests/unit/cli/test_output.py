import json

from ottla.cli import output
from ottla.cli.output import Format, write_object, write_rows

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
    assert printed(capsys, Format.TSV) == "a\\tb\t12345\ttrue\t1,2\t\nc\t6\tfalse\t\t\n"


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
    assert output.bold("x") == "\x1b[1mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.bold("x") == "x"
