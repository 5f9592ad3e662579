"""The options of a node that is one of several hosts, whose metadata is in etcd.

Owns their names, types, bounds and texts; ``ottla.metadata.etcd.address`` reads what they say.
Source: Kafka's broker configuration reference for ``broker.session.timeout.ms``; all others are
Ottla's own.
"""

from ottla.config.option import INT, STRING, Option, ValueType, at_least, between

PASSWORD = ValueType("PASSWORD", 9, str)
# fmt: off - one option is one paragraph
CLUSTER: Option[str | None] = Option(
    "ottla.cluster",
    STRING,
    None,
    "Where several hosts keep the metadata of their cluster: etcd://host:port,host:port/name, or"
    " etcds:// by TLS. None: it is in the first of log.dirs, and this host is alone.",
)
INTER_BROKER_PORT = Option(
    "ottla.inter.broker.port",
    INT,
    -1,
    "Where this node listens for those of other hosts, at the address of its first listener; 0: a"
    " free port, -1: the port behind that of the first listener.",
    validator=between(-1, 65_535),
)
ETCD_USER: Option[str | None] = Option(
    "ottla.etcd.user", STRING, None, "The user as whom nodes log in to etcd; None: they do not."
)
ETCD_PASSWORD: Option[str | None] = Option(
    "ottla.etcd.password", PASSWORD, None, "The password of ottla.etcd.user.", sensitive=True
)
ETCD_CA_FILE: Option[str | None] = Option(
    "ottla.etcd.ca.file",
    STRING,
    None,
    "With etcds://, the PEM file of who signs etcd's certificates. None: whom the system trusts.",
)
ETCD_CERTIFICATE_FILE: Option[str | None] = Option(
    "ottla.etcd.certificate.file",
    STRING,
    None,
    "With etcds://, the PEM file of the certificate that is shown to etcd. None: none is.",
)
ETCD_KEY_FILE: Option[str | None] = Option(
    "ottla.etcd.key.file", STRING, None, "The PEM file of the key of ottla.etcd.certificate.file."
)
BROKER_SESSION_TIMEOUT_MS = Option(
    "broker.session.timeout.ms",
    INT,
    9_000,
    "For so long a node that says nothing is a member of its cluster; then others lead what it led."
    " In etcd whole seconds, and at least one and a half of its election timeouts.",
    validator=at_least(1_000),
    unit="ms",
)
# fmt: on

OPTIONS = (
    CLUSTER,
    INTER_BROKER_PORT,
    BROKER_SESSION_TIMEOUT_MS,
    ETCD_USER,
    ETCD_PASSWORD,
    ETCD_CA_FILE,
    ETCD_CERTIFICATE_FILE,
    ETCD_KEY_FILE,
)
