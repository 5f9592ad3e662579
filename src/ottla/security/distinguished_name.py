"""The name of the subject in a certificate, as the text that Kafka makes of it; and its validity.

Owns the little of DER that leads to them, and the text of RFC 2253 in the form of Java's
X500Principal: the last part of the name comes first. Checks no signature: the certificate has been
checked before. Source: RFC 5280, RFC 2253; texts that Java prints for the same bytes.

    Certificate    := SEQUENCE { tbs: SEQUENCE { [0] version?, serial, algorithm, issuer, validity,
                      subject: Name, ... }, ... }
    validity       := SEQUENCE { notBefore: Time, notAfter: Time }; YYMMDDHHMMSSZ, or with YYYY
    Name           := SEQUENCE OF (SET OF SEQUENCE { type: OBJECT IDENTIFIER, value: string })
"""

from calendar import timegm
from typing import NamedTuple

NAME_BYTES_MAX = 16 * 1024
"""A larger subject is refused: its text would be longer than ``mapping_rules`` takes."""
IDENTIFIER_BYTES_MAX = 256
"""The longest identifier of an attribute's type; those that there are have some twenty. One number
of 2,500 bytes is more than Python prints, and one of 60,000 took the broker half a second."""
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_SHORT_TIME, _LONG_TIME = 0x17, 0x18
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The types of attributes that RFC 2253 gives a name. Others are numbers, with values in hex."""
_STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""Tags of the strings that Java shows as text, all of them as if they were UTF-8."""
_ESCAPED = ',=+<>#;"\\'


class NameUnreadable(Exception):
    """The bytes are no certificate, or its subject is no name."""


class _Part(NamedTuple):
    tag: int
    content: bytes
    whole: bytes
    """With tag and length."""


def subject_of(certificate: bytes) -> str:
    """Return the text of the subject of a certificate (DER). Raises NameUnreadable."""
    return name_text(_fields(certificate)[4].whole)


def validity_of(certificate: bytes) -> tuple[int, int]:
    """Return from when until when a certificate (DER) is valid, both included.

    In seconds since 1970, UTC. Raises NameUnreadable.
    """
    times = _parts(_of(_fields(certificate)[3], _SEQUENCE))
    if len(times) != 2:
        raise NameUnreadable("a validity that is no pair of times")
    return _time(times[0]), _time(times[1])


def _fields(certificate: bytes) -> list[_Part]:
    """Return the first fields of what is signed, from the serial number to the subject or more."""
    (outer,) = _parts(certificate, 1)
    parts = _parts(_of(_parts(_of(outer, _SEQUENCE), 1)[0], _SEQUENCE), 7)
    if parts and parts[0].tag == _VERSION:
        del parts[0]
    if len(parts) < 5:
        raise NameUnreadable("a certificate without a subject")
    return parts


def _time(part: _Part) -> int:
    text = part.content.decode("ascii", "replace")
    if part.tag == _SHORT_TIME:
        text = ("19" if text >= "50" else "20") + text
    elif part.tag != _LONG_TIME:
        raise NameUnreadable(f"a time of type {part.tag:#x}")
    if len(text) != 15 or not text.isascii() or not text[:14].isdigit() or text[14] != "Z":
        raise NameUnreadable("a time that is none of a certificate")
    year, *others = int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))
    try:
        return timegm((year, *others))
    except ValueError as error:
        raise NameUnreadable(f"a time that never is: {text}") from error


def name_text(name: bytes) -> str:
    """Return the text of a Name (DER). Raises NameUnreadable."""
    if len(name) > NAME_BYTES_MAX:
        raise NameUnreadable(f"a subject of {len(name)} bytes")
    (outer,) = _parts(name, 1)
    names = [_parts(_of(each, _SET)) for each in _parts(_of(outer, _SEQUENCE))]
    texts = ["+".join(_attribute(_of(each, _SEQUENCE)) for each in several) for several in names]
    return ",".join(reversed(texts))


def _parts(data: bytes, at_most: int | None = None) -> list[_Part]:
    """Return the elements that stand in ``data`` one after the other."""
    parts: list[_Part] = []
    position = 0
    while position < len(data) and (at_most is None or len(parts) < at_most):
        begin, length, size = position, _byte(data, position + 1), 0
        if length >= 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise NameUnreadable("a length that no certificate has")
            length = int.from_bytes(data[begin + 2 : begin + 2 + size], "big")
        content = begin + 2 + size
        position = content + length
        if position > len(data):
            raise NameUnreadable("an element that ends early")
        parts.append(_Part(data[begin], data[content:position], data[begin:position]))
    if not parts and at_most is not None:
        raise NameUnreadable("an element is missing")
    return parts


def _byte(data: bytes, position: int) -> int:
    if position >= len(data):
        raise NameUnreadable("an element that ends early")
    return data[position]


def _of(part: _Part, tag: int) -> bytes:
    if part.tag != tag:
        raise NameUnreadable(f"an element of type {part.tag:#x}, expected {tag:#x}")
    return part.content


def _attribute(content: bytes) -> str:
    parts = _parts(content)
    if len(parts) != 2:
        raise NameUnreadable("an attribute that is no pair of type and value")
    identifier = _identifier(_of(parts[0], _OID))
    keyword, value = _KEYWORDS.get(identifier), parts[1]
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or identifier}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _identifier(content: bytes) -> str:
    """Return the numbers of an object identifier, with dots between. Raises NameUnreadable."""
    if not 0 < len(content) <= IDENTIFIER_BYTES_MAX:
        raise NameUnreadable(f"an object identifier of {len(content)} bytes")
    numbers: list[int] = []
    number = 0
    for byte in content:
        if byte == 0x80 and number == 0:
            raise NameUnreadable("a number of an object identifier that begins with nothing")
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if content[-1] >= 0x80:
        raise NameUnreadable("an object identifier that ends early")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - first * 40, *numbers[1:])))


def _escaped(text: str) -> str:
    escaped = "".join(
        f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text
    )
    body = escaped.strip(" \r")
    if not body:
        return "".join(f"\\{each}" for each in escaped)
    before, _, after = escaped.partition(body)
    return "".join(f"\\{each}" for each in before) + body + "".join(f"\\{each}" for each in after)
