"""``ottla consume``: several topics, --where and --decode, on Ottla and on Apache Kafka."""

import json

import pytest

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topics(ottla, topic_name):
    """Two topics; the first has 100 JSON values, a tombstone, and one that is no JSON."""
    one, two = f"{topic_name}-one", f"{topic_name}-two"
    for name in (one, two):
        assert ottla("topic", "create", name, "-p", "2")[0] == 0
    records = [{"key": f"k{n}", "value": {"id": n, "even": n % 2 == 0}} for n in range(100)]
    records[7]["headers"] = [["trace", "abc"]]
    records += [{"key": "k3", "value": None}, {"key": "bad", "value": "{no json"}]
    text = "".join(json.dumps(each) + "\n" for each in records)
    assert ottla("produce", one, "--jsonl", "-q", "--codec", "gzip", text=text)[0] == 0
    assert ottla("produce", two, "-q", text="second\n")[0] == 0
    return one, two


def test_several_topics_and_a_pattern(ottla, topics):
    one, two = topics
    code, out, _ = ottla("consume", one, two, "-f", "%t\\n")
    assert (code, out.count(one), out.count(two)) == (0, 102, 1)
    pattern = one.removesuffix("one") + "(one|two)"
    assert sorted(ottla("consume", "--regex", pattern, "-f", "%t\\n")[1]) == sorted(out)
    code, out, err = ottla("consume", "--regex", f"{pattern}-nothing")
    assert (code, out) == (5, "")
    assert "no topic fits" in err
    for wrong in (("--regex", "("), ("--regex", "x", one), ()):
        assert ottla("consume", *wrong)[0] == 2


def test_conditions_find_what_they_say_and_say_how_much_was_read(ottla, topics):
    def keys(*conditions):
        wheres = [part for each in conditions for part in ("--where", each)]
        code, out, err = ottla("consume", topics[0], *wheres, "-f", "%k\\n")
        assert code == 0, err
        assert f"read 102 of 102, found {len(out.split())}" in err
        return sorted(out.split())

    assert keys("value.id = 42") == ["k42"]
    assert keys("value.id >= 98") == ["k98", "k99"]
    assert keys("value.id < 4", "value.even = true") == ["k0", "k2"]
    assert keys("header.trace = abc") == ["k7"]
    assert keys("value = null") == ["k3"]
    assert keys("key = k3") == ["k3", "k3"]
    assert keys("value contains no json") == ["bad"]
    assert keys("key ~ ^k1.$", "offset >= 0", "partition < 2") == [f"k1{n}" for n in range(10)]
    assert keys("value.id = 4242") == []
    assert ottla("consume", topics[0], "--where", "id = 1")[0] == 2


def test_a_count_is_of_matches_and_a_group_goes_on_behind_the_last_one(ottla, topics):
    where = ("--where", "value.even = false")
    code, out, _ = ottla("consume", topics[0], *where, "-n", "3", "-f", "%k\\n")
    assert (code, len(out.split())) == (0, 3)
    seen = []
    for count in (3, 100):
        more = ("-n", str(count), "-g", topics[0], "-f", "%k\\n")
        code, out, err = ottla("consume", topics[0], *where, *more)
        assert code == 0, err
        seen += out.split()
    assert sorted(seen) == sorted(f"k{n}" for n in range(1, 100, 2))


def test_decoded_values_are_nested_and_bad_ones_marked(ottla, topics):
    code, out, _ = ottla("consume", topics[0], "--decode", "json", "-o", "jsonl")
    assert code == 0
    records = [json.loads(line) for line in out.splitlines()]
    found = {each["value"]["id"] for each in records if isinstance(each["value"], dict)}
    assert found == set(range(100))
    (bad,) = (each for each in records if "undecoded" in each)
    assert (bad["key"], bad["value"]) == ("bad", "{no json")
    code, out, err = ottla(
        "consume", topics[0], "--decode", "key=hex", "-f", "%k\\n", "-w", "value = null"
    )
    assert (code, out) == (0, b"k3".hex() + "\n")
    code, _, err = ottla("consume", topics[0], "--decode", "json")
    assert code == 0
    assert "not decoded, and shown as they are: 1" in err
    assert ottla("consume", topics[0], "--decode", "avrö")[0] == 2
