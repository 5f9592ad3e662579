"""SipHash-2-4 with a result of 128 bits: nobody without the seed can make two keys meet.

Compiled kernels have it from siphash.pxd, which says the same in C: whoever changes one changes the
other (tests run both). Source: SipHash (Aumasson, Bernstein), 128-bit form.
"""

from ottla.records.numbers import Octets

_MASK = 0xFFFFFFFFFFFFFFFF


def siphash(data: Octets, start: int, end: int, seed_low: int, seed_high: int) -> tuple[int, int]:
    """Return the hash of ``data[start:end]``, the low half first; all numbers are unsigned."""
    a = seed_low ^ 0x736F6D6570736575  # "somepseu", and so on
    b = seed_high ^ 0x646F72616E646F6D ^ 0xEE
    c = seed_low ^ 0x6C7967656E657261
    d = seed_high ^ 0x7465646279746573
    whole = start + ((end - start) & ~7)
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(start, whole, 8)]
    words.append(int.from_bytes(data[whole:end], "little") | ((end - start) & 0xFF) << 56)
    for word in words:
        a, b, c, d = _rounds(a, b, c, d ^ word, 2)
        a ^= word
    a, b, c, d = _rounds(a, b, c ^ 0xEE, d, 4)
    low = a ^ b ^ c ^ d
    a, b, c, d = _rounds(a, b ^ 0xDD, c, d, 4)
    return low, a ^ b ^ c ^ d


def _rounds(a: int, b: int, c: int, d: int, count: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        a = (a + b) & _MASK
        b = _turned(b, 13) ^ a
        a = _turned(a, 32)
        c = (c + d) & _MASK
        d = _turned(d, 16) ^ c
        a = (a + d) & _MASK
        d = _turned(d, 21) ^ a
        c = (c + b) & _MASK
        b = _turned(b, 17) ^ c
        c = _turned(c, 32)
    return a, b, c, d


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK
