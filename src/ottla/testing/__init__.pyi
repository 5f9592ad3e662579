from ottla.testing.broker import Broker as Broker
from ottla.testing.cluster import Cluster as Cluster
from ottla.testing.cluster import Received as Received
from ottla.testing.cluster import Written as Written
from ottla.testing.container import KafkaContainer as KafkaContainer
from ottla.testing.schema_registry import SchemaRegistry as SchemaRegistry
