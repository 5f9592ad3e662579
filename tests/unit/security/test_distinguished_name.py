"""The name in a certificate as text: what Java prints for the same bytes."""

import json
import random
import ssl
from pathlib import Path

import pytest

from ottla.security.distinguished_name import (
    NAME_BYTES_MAX,
    NameUnreadable,
    name_text,
    subject_of,
)
from tests.certificates import certificates

OF_JAVA = json.loads((Path(__file__).parent / "names_of_java.json").read_text(encoding="utf-8"))
"""Names (DER, in hex) and the texts that X500Principal.getName of Java 17 returns for them."""


def test_the_text_is_javas():
    assert [name_text(bytes.fromhex(name)) for name, _ in OF_JAVA] == [text for _, text in OF_JAVA]


def test_the_subject_of_a_certificate():
    text = (certificates() / "client.crt").read_text()
    assert subject_of(ssl.PEM_cert_to_DER_cert(text)) == "CN=client,O=Ottla\\, Test,C=AT"


def test_any_bytes_are_read_or_refused():
    whole = ssl.PEM_cert_to_DER_cert((certificates() / "client.crt").read_text())
    chooser = random.Random(4)
    cases = [whole[:length] for length in range(len(whole))]
    for _ in range(3000):
        broken = bytearray(whole)
        for _ in range(chooser.choice([1, 2, 5])):
            broken[chooser.randrange(200)] = chooser.randrange(256)
        cases.append(bytes(broken))
    refused = 0
    for case in cases:
        try:
            assert isinstance(subject_of(case), str)
        except NameUnreadable:
            refused += 1
    assert refused > 500


def test_a_subject_that_is_too_large_is_refused():
    body = bytes(NAME_BYTES_MAX)
    with pytest.raises(NameUnreadable, match="a subject of"):
        name_text(b"\x30\x83" + len(body).to_bytes(3, "big") + body)


def element(tag, content):
    return bytes((tag, 0x82)) + len(content).to_bytes(2, "big") + content


def of_type(identifier):
    """Return a name of one attribute of this type, with an empty text."""
    attribute = element(0x30, element(0x06, identifier) + element(0x0C, b""))
    return element(0x30, element(0x31, attribute))


def test_a_type_is_a_number_of_any_size_that_there_is():
    uuid = (1 << 128) - 1
    content = b"\x69\x83" + b"\xff" * 17 + b"\x7f"
    assert name_text(of_type(content)) == f"2.25.{uuid}=#0c820000"


@pytest.mark.parametrize(
    "identifier",
    [
        b"",
        b"\x55\x04\x83",
        b"\x55\x04\x80\x03",
        b"\xff" * 256 + b"\x7f",
        b"\xff" * 16_000 + b"\x7f",
    ],
)
def test_a_type_that_is_no_number_or_a_huge_one_is_refused(identifier):
    """A huge one took half a second, and ended in an error that nobody expected."""
    with pytest.raises(NameUnreadable):
        name_text(of_type(identifier))
