"""The table of APIs says the same as the messages it names."""

import subprocess
import sys

import pytest

from ottla.protocol.apis import API_TABLE, ApiKey, api
from ottla.protocol.fields import Versions


@pytest.mark.parametrize("entry", API_TABLE.values(), ids=lambda entry: entry.name)
def test_the_table_and_the_messages_agree(entry):
    for message in (entry.request, entry.response):
        assert entry.key == message.API_KEY
        assert entry.versions == message.VERSIONS
        for version in entry.versions:
            assert (version in message.FLEXIBLE) == entry.is_flexible(version)
    assert entry.request.__name__ == entry.name + "Request"
    assert entry.response.__name__ == entry.name + "Response"


def test_every_key_has_its_row():
    assert list(API_TABLE) == list(ApiKey)
    assert api(18) is API_TABLE[ApiKey.API_VERSIONS]
    assert api(4) is None
    assert api(-1) is None


def test_controller_keys_are_not_here():
    keys = {int(key) for key in ApiKey}
    assert not keys & {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}


def test_what_is_advertised_differs_from_what_exists_where_the_table_says_so():
    found = {
        entry.key: (str(entry.versions), str(entry.advertised_versions))
        for entry in API_TABLE.values()
        if entry.advertised_versions != entry.versions
    }
    assert found == {ApiKey.PRODUCE: ("3-13", "0-13")}


def test_the_table_imports_no_message_module():
    code = (
        "import sys, ottla.protocol.apis, ottla.protocol.header;"
        "print([n for n in sys.modules if n.startswith('ottla.protocol.messages.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-2", [0, 1, 2], [-1, 3]), ("3+", [3, 99], [2]), ("", [], [0, 1])],
)
def test_versions_are_inclusive_ranges(text, inside, outside):
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
