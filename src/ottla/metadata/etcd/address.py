"""Where the etcd of a cluster is, and the cluster's name in it. Pure.

Source: ZooKeeper's connect strings, which name members and a path in the same way.

etcd://host[:port][,host[:port]]*/name      port: 2379 if it is left out
etcds://...                                 the same, by TLS
"""

from typing import NamedTuple

from ottla.errors import OttlaError

SCHEMES = {"etcd": False, "etcds": True}
"""By the scheme, whether it is by TLS."""
DEFAULT_PORT = 2379
ENDPOINTS_MAX = 16
NAME_CHARACTERS_MAX = 100
_PORT_MAX = (1 << 16) - 1
_LOOPBACK = ("127.", "localhost", "[::1]")


class NotAnEtcd(OttlaError):
    """A text says where no etcd can be."""


class EtcdAddress(NamedTuple):
    """The members of an etcd, and a cluster in it."""

    endpoints: tuple[str, ...]
    """Each ``host:port``; an IPv6 address in brackets."""
    name: str
    is_tls: bool = False

    def __str__(self) -> str:
        scheme = "etcds" if self.is_tls else "etcd"
        return f"{scheme}://{','.join(self.endpoints)}/{self.name}"

    @property
    def is_on_this_machine(self) -> bool:
        """Whether all members are at a loopback address."""
        return all(each.startswith(_LOOPBACK) for each in self.endpoints)


def parse_address(text: str) -> EtcdAddress:
    """Return what ``text`` says. Raises NotAnEtcd."""
    scheme, separator, rest = text.partition("://")
    members, slash, name = rest.partition("/")
    if not separator or scheme not in SCHEMES:
        raise NotAnEtcd(f"{text!r} does not begin with etcd:// or etcds://")
    if not slash or not 0 < len(name) <= NAME_CHARACTERS_MAX or not _is_name(name):
        why = "the cluster's name comes behind the last host, as in etcd://h1,h2,h3/name"
        raise NotAnEtcd(f"{text!r}: {why} (letters, digits, dots, dashes and underscores)")
    endpoints = tuple(map(_endpoint, members.split(",")))
    if len(endpoints) > ENDPOINTS_MAX or len(set(endpoints)) != len(endpoints):
        raise NotAnEtcd(f"{text!r}: name up to {ENDPOINTS_MAX} members, each once")
    return EtcdAddress(endpoints, name, SCHEMES[scheme])


def _is_name(text: str) -> bool:
    return text.isascii() and all(each.isalnum() or each in "._-" for each in text)


def _endpoint(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    is_host = host and (host[0] == "[") == (":" in host) and (host[0] == "[") == (host[-1] == "]")
    if not is_host or "@" in host or any(each.isspace() for each in host):
        raise NotAnEtcd(f"{text!r} is not a host with or without a port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise NotAnEtcd(f"{text!r}: {port!r} is not a port")
    return f"{host}:{int(port)}"
