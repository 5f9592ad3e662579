"""Expected bytes are what kcat 1.7.1 printed; ``tests/e2e/test_cli_cat.py`` asks it again."""

import pytest

from ottla.cli.cat_format import (
    Look,
    compile_format,
    compile_json,
    compile_unpack,
    default_format,
    parse_delimiter,
)
from ottla.cli.cat_produce import Cut, by_crc32, key_and_value
from ottla.ids import TopicPartition
from ottla.records.record import Record

HERE = TopicPartition("orders", 2)
RECORD = Record(7, 1700, key=b"k", value=b'"\x01\xff', headers=(("a", b"1\x002"), ("b", None)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb"%t %p %o %k %T %K %S %%", b"orders 2 7 k 1700 1 3 %"),
        (rb"%h", b"a=1,b=NULL"),
        (rb"%R", b"\0\0\0\3"),
        (rb"\x41\xff\065\101\x4aZ\q", b"Aff5eJZq"),
        (rb"a\0b%o", b"a7"),
        (rb"", b""),
    ],
)
def test_a_format_is_read_as_kcat_reads_it(text, expected):
    assert compile_format(text, Look())(HERE, RECORD) == expected


@pytest.mark.parametrize("text", [b"%z", b"100%"])
def test_an_unknown_token_is_named(text):
    with pytest.raises(ValueError, match="is not one of"):
        compile_format(text, Look())


def test_null_and_empty_print_alike():
    for record in (Record(), Record(key=b"", value=b"")):
        assert compile_format(b"%k:%s", Look(b"NULL"))(HERE, record) == b"NULL:NULL"
        assert compile_format(b"%k:%s", Look())(HERE, record) == b":"


def test_json_keeps_bytes_that_are_no_text():
    shown = compile_json(b";", lambda _: 3, Look())(HERE, RECORD)
    assert shown == (
        b'{"topic":"orders","partition":2,"offset":7,"tstype":"create","ts":1700,"broker":3,'
        b'"headers":["a","1\\u00002","b",null],"key":"k","payload":"\\"\\u0001\xff"};'
    )


def test_delimiters():
    assert parse_delimiter(rb"\x54!\x45\x53T\n\t") == b"T!EST\n\t"
    assert default_format(b"\n", b":") == b"%k:%s\n"
    with pytest.raises(ValueError, match="hexadecimal"):
        parse_delimiter(rb"\xg")


@pytest.mark.parametrize(
    ("how", "data", "expected"),
    [
        (">hI", b"\xff\xff\0\0\0\1", b"-11"),
        ("<i q", b"\1\0\0\0" + b"\2" + bytes(7), b"1 2"),
        ("cs", b"abc", b"abc"),
        ("B$", b"\xff", b"255"),
    ],
)
def test_packed_numbers(how, data, expected):
    assert compile_unpack(how)(data) == expected


@pytest.mark.parametrize(("how", "data"), [("i", b"\1"), ("b$", b"12")])
def test_packed_numbers_that_do_not_fit_are_told(how, data):
    with pytest.raises(ValueError, match="remain"):
        compile_unpack(how)(data)
    for wrong in ("", "x"):
        with pytest.raises(ValueError, match="is"):
            compile_unpack(wrong)


@pytest.mark.parametrize(
    ("data", "cut", "expected"),
    [
        (b"a:1", Cut(None, None, is_null=True), (None, b"a:1")),
        (b"a:", Cut(b":", None, is_null=False), (b"a", b"")),
        (b"a:", Cut(b":", None, is_null=True), (b"a", None)),
        (b":1", Cut(b":", b"f", is_null=False), (b"", b"1")),
        (b":1", Cut(b":", b"f", is_null=True), (b"f", b"1")),
        (b"x", Cut(b":", b"f", is_null=True), (b"f", b"x")),
    ],
)
def test_keys_and_values(data, cut, expected):
    assert key_and_value(data, cut) == expected


def test_an_empty_key_goes_anywhere():
    assert by_crc32(b"", 5) is None
    assert by_crc32(None, 5) is None
    assert by_crc32(b"123456789", 1 << 32) == 0xCBF43926
