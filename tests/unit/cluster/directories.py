"""Partition directories, as the processes of a node leave and find them."""

from ottla.env.clock import ManualClock
from ottla.env.rng import SeededRng
from ottla.ids import NodeId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.records.builder import build_batch
from ottla.records.record import Record

NODE = NodeId(1)


def open_logs(disk, node_id=NODE, log_dirs=("/data",), clock=None):
    """Return the logs of a node that has just started."""
    manager = LogManager(
        disk=disk,
        clock=clock or ManualClock(),
        rng=SeededRng(node_id),
        log_dirs=list(log_dirs),
        cluster_id="cluster",
        node_id=node_id,
        config_for=lambda topic: LogConfig(),
    )
    manager.start()
    return manager


def write_logs(disk, partitions, topic_id, *, epoch=0, node_id=NODE, log_dir="/data"):
    """Leave partition directories, one record more in each, after a clean stop."""
    manager = open_logs(disk, node_id, (log_dir,))
    for topic, index in partitions:
        log = manager.create(TopicPartition(topic, index), topic_id)
        batch = memoryview(bytearray(build_batch([Record(value=b"kept")])))
        log.append(batch, leader_epoch=epoch)
    manager.stop()
