"""``KafkaContainer`` with the methods of testcontainers': a swap of one line, without Docker.

Image, ports and modes are taken and mean nothing here. Source: testcontainers-python's
documentation of its Kafka module.
"""

from typing import Self

from ottla.testing.broker import Broker


class KafkaContainer:
    """A broker in a process of its own, by the names that testcontainers' users know."""

    def __init__(self, image: str = "", port: int = 9093, **_: object) -> None:
        """``image`` and ``port`` (inside of a container) change nothing."""
        self.image = image
        self.port = port
        self._config: dict[str, str] = {}
        self._broker: Broker | None = None

    def with_kraft(self) -> Self:
        """Return this: there is no other mode."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Return this; the broker keeps the id that it makes."""
        del cluster_id
        return self

    def with_env(self, key: str, value: str) -> Self:
        """Take ``KAFKA_LOG_RETENTION_MS`` as the option ``log.retention.ms``; ignore others."""
        from ottla.config.broker import BROKER_TABLE

        option = key.removeprefix("KAFKA_").replace("_", ".").lower()
        if key.startswith("KAFKA_") and not _is_network(option) and option in BROKER_TABLE:
            self._config[option] = value
        return self

    def start(self, timeout: float = 30) -> Self:
        """Start; returns when clients are served. It takes less than ``timeout`` seconds."""
        del timeout
        self._broker = Broker(process=True, config=self._config).start()
        return self

    def stop(self, *_: object, **__: object) -> None:
        """Stop. Harmless when stopped."""
        if self._broker is not None:
            self._broker.stop()

    def get_bootstrap_server(self) -> str:
        """Return ``host:port``. Raises BrokerFailed unless started."""
        if self._broker is None:
            from ottla.testing.hosts import BrokerFailed

            raise BrokerFailed("the container is not started")
        return self._broker.bootstrap

    def get_container_host_ip(self) -> str:
        """Return the host that clients connect to."""
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """Return the port that clients connect to."""
        del port
        return int(self.get_bootstrap_server().rpartition(":")[2])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_network(option: str) -> bool:
    """Whether an option belongs to a container's own network or quorum."""
    return "listener" in option or option.startswith(("controller.", "process.", "node.id"))
