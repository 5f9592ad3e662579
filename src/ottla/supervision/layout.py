"""Which ports and directories the nodes of one host have. Pure.

    listener ``NAME://host:P``   the door P, and P + k for node k (``--node-ports F``: F + k - 1)
    log directory ``D``          D for node 1, D/nodes/k for node k

Node 1 is where a single node would be, so that its data is the data of node 1, both ways. No
partition's directory is called ``nodes``. Source: cluster design, sections 2.2 and 2.3.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config import broker as options
from ottla.config.config import Config
from ottla.config.listeners import Endpoint
from ottla.config.option import InvalidConfig, value_text
from ottla.ids import NodeId
from ottla.node.identity import NODES_DIRECTORY

NODES_MAX = 64
AUTO_NODES_MAX = 16
PORT_MAX = (1 << 16) - 1


class ListenerPorts(NamedTuple):
    """The ports of one listener; 0 stands for a free one that is not chosen yet."""

    name: str
    host: str
    door: int
    nodes: tuple[int, ...]
    """Those of the nodes 1, 2, ..."""


def node_ids(count: int) -> tuple[NodeId, ...]:
    """Return the ids of ``count`` nodes."""
    return tuple(NodeId(number) for number in range(1, count + 1))


def node_directory(log_dir: str, node: NodeId) -> str:
    """Return the directory of a node in one of ``log.dirs``."""
    return log_dir if node == 1 else f"{log_dir}/{NODES_DIRECTORY}/{node}"


def plan_ports(
    listeners: Sequence[Endpoint], count: int, first_node_port: int | None = None
) -> tuple[ListenerPorts, ...]:
    """Return the ports to bind for ``count`` nodes.

    ``first_node_port``: where those of the nodes begin, the listeners' one after the other; 0: free
    ones; None: behind each door. Raises InvalidConfig when two would be the same or one is above
    the highest that there is.
    """
    planned = tuple(
        ListenerPorts(
            endpoint.name,
            endpoint.host,
            endpoint.port,
            _node_ports(endpoint.port, index, count, first_node_port),
        )
        for index, endpoint in enumerate(listeners)
    )
    _check(planned, count)
    return planned


def _node_ports(door: int, index: int, count: int, first: int | None) -> tuple[int, ...]:
    if first is None:
        first = door + 1 if door else 0
    elif first:
        first += index * count
    return tuple(range(first, first + count)) if first else (0,) * count


def _check(planned: Sequence[ListenerPorts], count: int) -> None:
    taken: dict[int, str] = {}
    for listener in planned:
        uses = [(listener.door, f"the door of {listener.name}")]
        uses += [(port, f"node {k} of {listener.name}") for k, port in enumerate(listener.nodes, 1)]
        for port, use in uses:
            if port > PORT_MAX:
                why = f"{use} would have the port {port}, and the highest is {PORT_MAX}"
                raise _refused(why, "choose a lower port, or --node-ports 0 for free ones")
            if port and port in taken:
                why = f"port {port} would be {taken[port]} and {use}"
                fix = (
                    f"ports of listeners must be {count + 1} apart, or --node-ports 0 for free ones"
                )
                raise _refused(why, fix)
            taken[port] = use


def _refused(why: str, fix: str) -> InvalidConfig:
    return InvalidConfig(options.LISTENERS.key, None, f"{why}; {fix}")


def node_texts(config: Config, node: NodeId, bound: Sequence[ListenerPorts]) -> dict[str, str]:
    """Return the options of one node. ``bound``: no port is 0 any more."""
    texts = dict(config.given())
    texts[options.NODE_ID.key] = str(node)
    texts[options.LOG_DIRS.key] = ",".join(
        node_directory(log_dir, node) for log_dir in config[options.LOG_DIRS]
    )
    texts[options.LISTENERS.key] = value_text(
        tuple(Endpoint(each.name, each.host, each.nodes[node - 1]) for each in bound)
    )
    advertised = config[options.ADVERTISED_LISTENERS]
    if advertised:
        texts[options.ADVERTISED_LISTENERS.key] = value_text(
            tuple(each._replace(port=each.port + node) for each in advertised)
        )
    return texts


def check_options(config: Config, count: int) -> None:
    """Raise InvalidConfig for options that several nodes cannot have as they are."""
    if config[options.NODE_ID] != options.NODE_ID.default:
        why = f"node.id is {config[options.NODE_ID]}, but with --nodes the nodes are 1 to {count}"
        raise InvalidConfig(options.NODE_ID.key, None, f"{why}; leave node.id out")
    for each in config[options.ADVERTISED_LISTENERS]:
        if each.port + count > PORT_MAX:
            why = f"{each}: node {count} would be told as port {each.port + count}"
            raise InvalidConfig(options.ADVERTISED_LISTENERS.key, None, why)
