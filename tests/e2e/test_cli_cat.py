"""``ottla cat`` against kcat, byte for byte: both read and write the same topics."""

import base64
import json
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.timeout(120)

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
CAT = (sys.executable, "-m", "ottla", "cat")
FORMATS = (
    r"%t [%p] %o %T: [%k|%s|%K|%S|%h]\n",
    r"%R%s",
    r"\x41\xff\065\101\x4aZ\t\q100%%\n",
    r"a\0b%s\n",
    r"%s%s%s\r\n",
    "",
)


def run(program, bootstrap, *arguments, data=b""):
    """Return what a program printed, which must succeed."""
    done = subprocess.run(
        [*program, "-b", bootstrap, "-F", "none", *map(str, arguments)],
        input=data,
        capture_output=True,
        timeout=60,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, (program, arguments, done.stderr)
    return done.stdout


@pytest.fixture
def differences(either):
    """Run kcat and ottla cat with each of some lists of arguments; return which print otherwise.

    Four at a time: kcat waits half a second for the end of a partition.
    """
    if KCAT is None:
        pytest.skip("kcat is not installed")

    def compare(cases, at_least=0):
        with ThreadPoolExecutor(4) as pool:
            theirs = pool.map(lambda each: run((KCAT,), either.bootstrap, *each), cases)
            ours = pool.map(lambda each: run(CAT, either.bootstrap, *each), cases)
            found = list(zip(cases, theirs, ours, strict=True))
        assert sum(len(printed) for _, printed, _ in found) > at_least
        return [each for each in found if each[1] != each[2]]

    return compare


@pytest.fixture
def topics(either, ottla, topic_name):
    """Two topics alike: one for kcat, one for ottla cat."""
    if KCAT is None:
        pytest.skip("kcat is not installed")
    names = (f"{topic_name}-kcat", f"{topic_name}-ottla")
    for each in names:
        assert ottla("topic", "create", each, "-p", "6")[0] == 0
    return names


@pytest.fixture
def odd_topic(either, ottla, topic_name):
    """One partition of records as odd as they come; so old that retention would take them."""
    kept = ("-c", "retention.ms=-1")
    assert ottla("topic", "create", topic_name, "-p", "1", *kept)[0] == 0
    lines = (
        {"key": None, "value": None},
        {"key": "", "value": ""},
        {"key": "k", "value": 'quote " back \\ slash / tab \t line \n bell \u0007 \u007f é \u2028'},
        {"key": {"base64": "AAH/gA=="}, "value": {"base64": "gP8AYWJj"}},
        {"value": "v", "headers": [["h", "1"], ["h", None], ["e", ""], ["b", {"base64": "AGE="}]]},
        {"key": "late", "value": "x", "timestamp": 1900},
    )
    text = "".join(json.dumps({"timestamp": 1700, **line}) + "\n" for line in lines)
    assert ottla("produce", topic_name, "--jsonl", "-q", text=text)[0] == 0
    return topic_name


def test_records_print_as_kcat_prints_them(either, differences, odd_topic):
    read = ("-C", "-t", odd_topic, "-p", "0", "-e")
    cases = [
        (*read, *options)
        for options in (
            (),
            ("-J",),
            ("-J", "-f", "x%s", "-o", "s@1701"),
            ("-Z", "-K", r"\x09|", "-D", ";", "-o", "-2"),
            ("-o", "s@1", "-o", "e@1800", "-qu"),
            *(("-f", each) for each in FORMATS[:2]),
        )
    ]
    if either.name == "ottla":  # What depends on no broker.
        cases += [(*read, "-f", each) for each in FORMATS[2:]]
        cases += [(*read, "-J", "-D", r"\n\n"), (*read, "-K:"), (*read, "-Z", "-f", "%k=%s;")]
    cases += [(*read, "-o2", "-c2"), (*read, "-o", "99"), (*read[:-1], "-c", "3")]
    assert not differences(cases, at_least=1000)


def random_bytes(size_max):
    """Return bytes, text, JSON or what delimits; drawn by pytest-randomly's seed."""
    size = random.randrange(size_max)
    kind = random.randrange(5)
    if kind == 0:
        return random.randbytes(size)
    if kind == 1:
        ranges = (range(128), range(0x80, 0x800), range(0x800, 0xD7FF), range(0x10000, 0x10FFF))
        return "".join(chr(random.choice(random.choice(ranges))) for _ in range(size)).encode()
    if kind == 2:
        return json.dumps({"a": random.random(), "b": 'x\\"\n'}).encode()
    return bytes(random.choices(b'ab \t\n\\"/:;', k=size)) if kind == 3 else b""


def random_record(number):
    def data(size_max):
        if random.random() < 0.1:
            return None
        return {"base64": base64.b64encode(random_bytes(size_max)).decode()}

    names = [random_bytes(6).decode("utf-8", "ignore").replace("\0", "") for _ in range(3)]
    headers = [[name, data(9)] for name in names[: random.choice((0, 0, 1, 3))]]
    return {"timestamp": 1000 + number, "key": data(20), "value": data(60), "headers": headers}


def random_format():
    # No \\0: kcat takes one that ends its text for a failed write.
    tokens = ("%t", "%p", "%o", "%k", "%s", "%S", "%K", "%T", "%h", "%%")
    literals = (r"\n", r"\t", r"\x41", r"\101", "abc", " ", r"\\", "é", r"\e", r"\b")
    some = (random.choice(random.choice((tokens, literals))) for _ in range(random.randint(1, 8)))
    return "".join(some)


def test_random_records_print_as_kcat_prints_them(ottla, differences, topic_name):
    assert ottla("topic", "create", topic_name, "-p", "1")[0] == 0
    text = "".join(json.dumps(random_record(number)) + "\n" for number in range(200))
    assert ottla("produce", topic_name, "--jsonl", "-q", text=text)[0] == 0
    place = random.randrange(200)
    options = [
        ("-J",),
        ("-K", random.choice((":", r"\t", "|x")), "-Z"),
        ("-o", f"s@{1000 + place}"),
    ]
    options += [("-o", place, "-c", random.randint(1, 30), "-J")]
    options += [("-f", random_format()) for _ in range(4)]
    read = ("-C", "-t", topic_name, "-p", "0", "-e")
    assert not differences([(*read, *each) for each in options], at_least=1000)


def test_metadata_and_offsets_print_as_kcat_prints_them(differences, odd_topic):
    cases = [
        ("-L", "-t", odd_topic),
        ("-LJ", "-t", odd_topic),
        ("-Q", "-t", f"{odd_topic}:0:-1"),
        ("-QJ", "-t", f"{odd_topic}:0:-2"),
        ("-Q", "-t", f"{odd_topic}:0:1701"),
    ]
    assert not differences(cases, at_least=500)


def test_records_are_written_as_kcat_writes_them(either, topics, tmp_path):
    """The same keys, values, headers and partitions, whatever is in the input."""
    whole = tmp_path / "whole"
    whole.write_bytes(b"all\nof\nit\n")
    empty = tmp_path / "empty"
    empty.touch()
    lines = b"a:1\n\nb\n:2\nc:\n::\n\xff\xfe:\x00\nlong;key:z"
    cases = (
        (lines, ("-K", ":", "-Z", "-k", "fixed")),
        (lines, ("-K", ":", "-Z", "-H", "a=b", "-H", "c", "-H", "a=", "-H", "x=y=z")),
        (lines, ("-k", "", "-l", whole)),
        (lines, ("-D", ";", "-K", r"\x3a", "-c", "1")),
        (b"", (whole, empty, whole)),
        (lines, ("-T", "-K", ":")),
    )

    def written(number, program):
        data, options = cases[number]
        topic = topics[program is CAT]
        at = ("-P", "-t", topic, "-p", number)
        printed = run(program, either.bootstrap, *at, *options, data=data)
        form = r"%K %S %h [%k] [%s]\n"
        read = ("-C", "-q", "-e", "-t", topic, "-p", number, "-f", form)
        return printed, run((KCAT,), either.bootstrap, *read)

    numbers = range(len(cases))
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(lambda each: written(each, (KCAT,)), numbers))
        ours = list(pool.map(lambda each: written(each, CAT), numbers))
    assert ours == theirs
    assert all(each[1] for each in theirs)


def test_random_input_is_written_as_kcat_writes_it(either, topics):
    def case():
        lines = (random.choices(b"ab:;\n\r|\0\xff", k=random.randrange(12)) for _ in range(30))
        data = b"".join(bytes(each) + b"\n" for each in lines)
        options = []
        for share, some in (
            (0.7, ("-K", random.choice((":", ";", r"\x3a", "ab", r"\t")))),
            (0.4, ("-Z",)),
            (0.3, ("-k", "key")),
            (0.4, ("-D", random.choice((";", r"\n", "|")))),
            (0.3, ("-c", random.randint(1, 9))),
            (0.3, ("-H", "a=b", "-H", "c")),
        ):
            if random.random() < share:
                options += some
        return data, options

    def written(number, program):
        data, options = cases[number]
        at = ("-t", topics[program is CAT], "-p", number)
        run(program, either.bootstrap, "-P", *at, *options, data=data)
        form = r"%K %S %h [%k] [%s]\n"
        return run((KCAT,), either.bootstrap, "-C", "-q", "-e", *at, "-f", form)

    cases = [case() for _ in range(6)]
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(lambda each: written(each, (KCAT,)), range(6)))
        ours = list(pool.map(lambda each: written(each, CAT), range(6)))
    assert ours == theirs, cases


def test_keys_go_to_the_partitions_that_kcat_would_choose(either, topics):
    """So that kcat and ottla cat may write to one topic, and equal keys meet."""
    data = "".join(f"key{number}:{number}\n" for number in range(60)).encode()
    places = []
    for program, topic in zip(((KCAT,), CAT), topics, strict=True):
        run(program, either.bootstrap, "-P", "-t", topic, "-K:", data=data)
        read = ("-C", "-q", "-t", topic, "-e", "-f", r"%k %p\n")
        places.append(sorted(run((KCAT,), either.bootstrap, *read).splitlines()))
    assert places[0] == places[1]
    assert len(places[0]) == 60


def test_a_group_goes_on_where_it_was_and_patterns_name_topics(ottla, topic_name):
    for topic, text in ((f"{topic_name}-a", "1\n2\n"), (f"{topic_name}-b", "3\n")):
        assert ottla("cat", "-P", "-t", topic, text=text)[0] == 0
    group = ("cat", "-q", "-e", "-G", topic_name, "-X", "auto.offset.reset=earliest")
    code, out, err = ottla(*group, f"^{topic_name}-")
    assert (code, sorted(out.split())) == (0, ["1", "2", "3"]), err
    assert ottla("cat", "-P", "-t", f"{topic_name}-b", text="4\n")[0] == 0
    assert ottla(*group, f"^{topic_name}-")[:2] == (0, "4\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-C",), 2, "-t TOPIC is missing"),
        (("-CL", "-t", "t"), 2, "exclude each other"),
        (("-C", "-t", "no-such-topic"), 5, "no-such-topic"),
        (("-C", "-t", "t", "-f", "%z"), 2, "%z"),
        (("-C", "-t", "t", "-o", "soon"), 2, "soon"),
        (("-C", "-t", "t", "file"), 2, "file"),
        (("-P", "-t", "t", "-D", ""), 2, "-D"),
        (("-P", "-t", "t", "-z", "rar"), 2, "rar"),
        (("-P", "-t", "t", "-X", "transactional.id=x"), 2, "transactional.id"),
        (("-P", "-t", "t", "/no/such/file"), 1, "/no/such/file"),
        (("-Q", "-t", "t:0"), 2, "t:0"),
        (("-Q", "-t", "no-such-topic:0:-1", "-t", "nor-this:0:-1"), 5, "no-such-topic"),
        (("-G", "g", "^no-such-topic"), 5, "^no-such-topic"),
        (("-Cy",), 2, "-y"),
        (("-C", "-t"), 2, "-t needs a value"),
        (("-C", "-t", "t", "-s", "avro"), 2, "avro"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(ottla_server, arguments, code, said):
    from tests.commands import run_command

    done, _, err = run_command(ottla_server.bootstrap, "cat", *arguments)
    assert done == code
    assert said in err
