"""Addresses of clients in options: one spelling for each, and a number of connections by address.

Owns the syntax of ``max.connections.per.ip.overrides`` (``ADDRESS:COUNT,...``). Names are not
looked up. Source: Kafka's documentation of the option.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

LOCALHOST = "localhost"
_COUNT_DIGITS_MAX = 9


class CountsByAddress(NamedTuple):
    """How many connections single addresses may have. ``str()`` gives the option's text."""

    counts: Mapping[str, int] = MappingProxyType({})

    def __str__(self) -> str:
        return ",".join(f"{address}:{count}" for address, count in self.counts.items())


def address_of(text: str) -> str:
    """Return an address as connections have it. Raises ValueError for what is none."""
    from ipaddress import ip_address  # noqa: PLC0415 - few options name an address

    if text == LOCALHOST:
        return "127.0.0.1"
    address = ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)


def read_counts(text: str) -> CountsByAddress:
    """Return what ``ADDRESS:COUNT,...`` stands for. Raises ValueError with the reason."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, count = (piece.strip() for piece in part.rpartition(":"))
        is_number = count.isascii() and count.isdigit() and len(count) <= _COUNT_DIGITS_MAX
        if not colon or not is_number:
            raise ValueError(f"Unable to parse {part}, expected ADDRESS:COUNT")
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        try:
            counts[address_of(name)] = int(count)
        except ValueError:
            raise ValueError(f"{name} is no IP address; names are not looked up") from None
    return CountsByAddress(counts)
