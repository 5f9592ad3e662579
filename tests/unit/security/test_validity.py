"""From when until when a certificate is valid, as the TLS library reads it."""

import ssl

import pytest

from ottla.env.pem import CERTIFICATE_MARK, first_certificate_of
from ottla.security.distinguished_name import NameUnreadable, validity_of
from tests.certificates import certificates

END = "-----END CERTIFICATE-----"


@pytest.mark.parametrize("name", ["server", "expired", "ca"])
def test_the_library_reads_the_same_times(name):
    path = certificates() / ("ca.pem" if name == "ca" else f"{name}.crt")
    known = ssl._ssl._test_decode_cert(str(path))
    wanted = tuple(ssl.cert_time_to_seconds(known[key]) for key in ("notBefore", "notAfter"))
    certificate = first_certificate_of(path.read_text())
    assert certificate == ssl.PEM_cert_to_DER_cert(path.read_text())
    assert validity_of(certificate) == wanted


def certificate_with(*times):
    """A certificate whose validity is made of these (tag, text)."""

    def part(tag, content):
        assert len(content) < 128
        return bytes([tag, len(content)]) + content

    validity = part(0x30, b"".join(part(tag, text) for tag, text in times))
    fields = part(0x02, b"1") + part(0x30, b"") + part(0x30, b"") + validity + part(0x30, b"")
    return part(0x30, part(0x30, fields))


def test_both_forms_of_times():
    times = ((0x17, b"500101000000Z"), (0x18, b"20500101000000Z"))
    assert validity_of(certificate_with(*times)) == (-631_152_000, 2_524_608_000)
    (begin, _) = validity_of(certificate_with((0x17, b"490101000000Z"), times[1]))
    assert begin == 2_493_072_000


@pytest.mark.parametrize(
    "times",
    [
        (),
        ((0x17, b"500101000000Z"),),
        ((0x17, b"5001010000Z"), (0x17, b"500101000000Z")),
        ((0x17, b"501301000000Z"), (0x17, b"500101000000Z")),
        ((0x18, b"00000000000000Z"), (0x17, b"500101000000Z")),
        ((0x17, b"50010100000\xffZ"), (0x17, b"500101000000Z")),
        ((0x04, b"500101000000Z"), (0x17, b"500101000000Z")),
    ],
)
def test_times_that_are_none_are_refused(times):
    with pytest.raises(NameUnreadable):
        validity_of(certificate_with(*times))


@pytest.mark.parametrize("text", ["", CERTIFICATE_MARK, f"{CERTIFICATE_MARK}\nMIIB=A{END}"])
def test_texts_without_a_certificate(text):
    found = first_certificate_of(text)
    if found is not None:
        with pytest.raises(NameUnreadable):
            validity_of(found)
