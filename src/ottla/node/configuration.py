"""The configuration in force: what the node was started with, plus what was altered since.

Owns it, and what it means to topics. Whoever follows it registers in ``listeners``. Source: the
dynamic broker configs of Kafka (KIP-226).
"""

import logging
from collections.abc import Callable
from os.path import abspath

from ottla.cluster.configs import broker_config_in_force
from ottla.config import broker as options
from ottla.config.config import Config
from ottla.config.topic import stored_topic_config, topic_config
from ottla.ids import NodeId
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.keys import ConfigType
from ottla.network.limits import Limits
from ottla.replication.partition import PartitionSettings
from ottla.settings import limits_of, partition_settings_of

logger = logging.getLogger(__name__)

MEMORY_LOG_DIR = "/data"


class Configuration:
    """Of one node."""

    def __init__(self, config: Config, *, memory: bool, open_files_max: int | None) -> None:
        """``memory``: files are kept in memory only. Raises InvalidConfig."""
        topic_config({}, config)  # Raises InvalidConfig for what no topic could follow.
        self.at_start = config
        self.node_id = NodeId(config[options.NODE_ID])
        self.is_memory = memory
        self._open_files_max = open_files_max
        self._image: MetadataImage | None = None
        self.listeners: list[Callable[[], None]] = []
        """Use: called when what is in force has changed."""
        self._take(config)

    def _take(self, config: Config) -> None:
        self.in_force = config
        # Made once: a start asks for them twice per partition.
        self._topic_defaults = stored_topic_config({}, config)
        self._default_settings = partition_settings_of(self._topic_defaults, config)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The log directories, absolute; the first one holds the metadata."""
        if self.is_memory:
            return (MEMORY_LOG_DIR,)
        return tuple(map(abspath, self.at_start[options.LOG_DIRS]))

    def read_from(self, image: MetadataImage) -> None:
        """Take the topics' configs from ``image`` from now on."""
        self._image = image

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take what was altered in the brokers' configs. Before the partitions hear of it."""
        if any(config_type is ConfigType.BROKER for config_type, _ in delta.configs):
            self._take(broker_config_in_force(self.at_start, image, self.node_id))
            for listener in self.listeners:
                listener()

    def of_topic(self, topic: str) -> Config:
        """Return a topic's configuration; the defaults for one that is not known (yet)."""
        given = None if self._image is None else self._image.config(ConfigType.TOPIC, topic)
        if not given:
            return self._topic_defaults
        return stored_topic_config(given, self.in_force)

    def settings_of(self, topic: str) -> PartitionSettings:
        """Return what a topic's configuration means to its partitions."""
        config = self.of_topic(topic)
        if config is self._topic_defaults:
            return self._default_settings
        return partition_settings_of(config, self.in_force)

    def limits(self) -> Limits:
        """Return what a connection may cost."""
        config = self.in_force
        limits = limits_of(config, self._open_files_max)
        if limits.connections_max < config[options.MAX_CONNECTIONS]:
            # The default is beyond many a shell's limit: news only to who chose a number.
            chosen = config.is_given(options.MAX_CONNECTIONS)
            logger.log(
                logging.WARNING if chosen else logging.INFO,
                "max.connections is %d here, not %d: the process may open %d files (ulimit -n)",
                limits.connections_max,
                config[options.MAX_CONNECTIONS],
                self._open_files_max,
            )
        return limits
