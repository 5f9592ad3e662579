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
