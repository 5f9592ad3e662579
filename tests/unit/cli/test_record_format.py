import pytest

from ottla.cli.record_format import compile_input, compile_output, key_separator, unescape
from ottla.ids import TopicPartition

HERE = TopicPartition("orders", 2)
ROW = (7, 1700, b"k\t", b"v", (("a", b"1"), ("b", None)))


def test_every_token():
    show = compile_output(r"%t %p %o %k %v %s %T %h %K %S %%\n")
    assert show(HERE, [ROW] * 2) == 2 * [b"orders 2 7 k\t v v 1700 a=1,b=NULL 2 1 %\n"]


def test_null_prints_as_nothing_and_has_length_minus_one():
    assert compile_output("[%k|%v|%K|%S]")(HERE, [(0, 0, None, None, ())]) == [b"[||-1|-1]"]


def test_a_format_may_show_nothing_of_a_record():
    assert compile_output(r"100%%\n")(HERE, [ROW] * 3) == [b"100%\n"] * 3


def test_escapes():
    assert unescape(r"\t\n\r\0\x41\\\q") == b"\t\n\r\0A\\q"
    assert unescape("\\") == b"\\"


def test_an_unknown_token_is_named():
    with pytest.raises(ValueError, match="%z is not one of"):
        compile_output("%z")


@pytest.mark.parametrize(
    ("format_", "line", "expected"),
    [
        ("%v", b"a b", (None, b"a b")),
        (r"%k\t%v\n", b"a\tb\tc", (b"a", b"b\tc")),
        ("%k:%s", b":x", (b"", b"x")),
        ("%v %k", b"a b", (b"b", b"a")),
        ("[%k] %v", b"[a] b", (b"a", b"b")),
        ("<%v>", b"<a>", (None, b"a")),
    ],
)
def test_lines_are_split(format_, line, expected):
    assert compile_input(format_)(line)[:2] == expected


def test_a_line_that_does_not_fit_is_told():
    with pytest.raises(ValueError, match="no ':'"):
        compile_input("%k:%v")(b"abc")
    with pytest.raises(ValueError, match="does not begin"):
        compile_input("<%v>")(b"abc>")


@pytest.mark.parametrize("format_", ["", "x", "%k", "%k%v", "%v %v", "%o %v", "%k %p%v"])
def test_an_input_format_that_cannot_be_read_back_is_refused(format_):
    with pytest.raises(ValueError, match="format"):
        compile_input(format_)


def test_a_line_says_more_than_key_and_value():
    found = compile_input(r"%t/%p@%T|%h|%k:%v\n")(b"orders/3@17|a=1,b=NULL,c,d=|k:v:w")
    assert found == (
        b"k",
        b"v:w",
        (("a", b"1"), ("b", None), ("c", None), ("d", b"")),
        3,
        "orders",
        17,
    )
    assert compile_input("%h %v")(b" x").headers == ()


@pytest.mark.parametrize("line", [b"x:v", b"-1:v", b"99999999999:v", b":v", "²:v".encode()])
def test_a_partition_that_is_no_number_is_told(line):
    with pytest.raises(ValueError, match="%p is"):
        compile_input("%p:%v")(line)


@pytest.mark.parametrize(
    ("format_", "separator"),
    [
        (r"%k\t%v\n", b"\t"),
        ("%k, %s", b", "),
        ("%v", None),
        ("%k%v", None),
        ("[%k] %v", None),
        ("%k %v;", None),
        ("%k %v %h", None),
        ("%v %k", None),
    ],
)
def test_formats_that_are_a_key_and_a_value(format_, separator):
    assert key_separator(format_) == separator
