"""What clients of a broker need to know to log in over TLS, in the form that each reads.

Owns the words of Java, librdkafka, Python's clients and Spark for the same settings. Does no I/O.
"""

import json
from typing import NamedTuple

MECHANISM = "SCRAM-SHA-256"
PROTOCOL = "SASL_SSL"
JAVA = "java.properties"
"""Java's clients and tools, and ``ottla --command-config``."""
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_HEAD = "# Written by `ottla serve --secure` at each start: copy it before you change it."


class Access(NamedTuple):
    """Where the broker is, and how one user logs in."""

    bootstrap: str
    user: str
    password: str
    """Of characters that no format needs to escape."""
    authority: str
    """The path of the certificates to trust."""

    def __repr__(self) -> str:
        # The password stays out of logs.
        return f"Access({self.bootstrap!r}, {self.user!r})"


def client_files(access: Access) -> dict[str, str]:
    """Return the files' contents by name."""
    files = {
        JAVA: _properties({key: _escaped(value) for key, value in _java(access).items()}),
        "librdkafka.conf": _properties(_librdkafka(access)),
        "librdkafka.json": _json(_librdkafka(access)),
        "kafka-python.json": _json({**_python(access), "ssl_cafile": access.authority}),
        "aiokafka.json": _json(_python(access)),
        "spark.json": _json({f"kafka.{key}": value for key, value in _java(access).items()}),
    }
    return {**files, "README.md": _README.format(**access._asdict())}


def _java(access: Access) -> dict[str, str]:
    return {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{access.user}" '
        f'password="{access.password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": access.authority,
    }


def _librdkafka(access: Access) -> dict[str, str]:
    return {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": MECHANISM,
        "sasl.username": access.user,
        "sasl.password": access.password,
        "ssl.ca.location": access.authority,
    }


def _python(access: Access) -> dict[str, str]:
    return {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": PROTOCOL,
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
    }


def _properties(settings: dict[str, str]) -> str:
    return "\n".join([_HEAD, *(f"{key}={value}" for key, value in settings.items()), ""])


def _escaped(value: str) -> str:
    """Return a value as a Java properties file has it."""
    return value.replace("\\", "\\\\")


def _json(settings: dict[str, str]) -> str:
    return json.dumps(settings, indent=2) + "\n"


_README = """\
# Clients of the broker at {bootstrap}

`ottla serve --secure` writes these files at each start. All but `ca.pem` are secret. Programs on
other machines need `ca.pem` and one of the other files, with their own path of `ca.pem` and the
address by which they reach the broker. The commands here are typed in this directory.

The user `{user}` may do everything. Make others, and say what they may do:

    ottla user set alice --command-config java.properties
    ottla acl add --allow-principal User:alice --producer --topic orders \
--command-config java.properties

## ottla, and Java's tools

    ottla topic list --command-config java.properties
    kafka-topics.sh --list --bootstrap-server {bootstrap} --command-config java.properties
    kafka-console-producer.sh --topic orders --bootstrap-server {bootstrap} \
--command-config java.properties

Kafka before 4.2: `--producer.config` and `--consumer.config` for the console's tools.

## kcat

    kcat -F librdkafka.conf -L

With a librdkafka before 2.6.1 (`kcat -V` tells) SCRAM fails, as it does with Kafka 4.

## Python

```python
import json, ssl

# confluent-kafka
from confluent_kafka import Producer

producer = Producer(json.load(open("librdkafka.json")))

# kafka-python
from kafka import KafkaProducer

producer = KafkaProducer(**json.load(open("kafka-python.json")))

# aiokafka
from aiokafka import AIOKafkaProducer

trust = ssl.create_default_context(cafile="ca.pem")
producer = AIOKafkaProducer(**json.load(open("aiokafka.json")), ssl_context=trust)
```

## PySpark

```python
options = json.load(open("spark.json"))
stream = spark.readStream.format("ottla").options(**options).option("subscribe", "orders").load()
```

Spark's own `format("kafka")` takes the same options.
"""
