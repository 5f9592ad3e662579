"""DescribeCluster, key 60: the brokers, the controller and the cluster's id.

v1 endpoint type (KIP-919), v2 fenced brokers (KIP-1073).
"""

from ottla.errors import ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.call import Call
from ottla.handlers.operations import CLUSTER_OPERATIONS
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

ENDPOINT_BROKER = 1
ENDPOINT_CONTROLLER = 2
NO_PORT = -1
"""As in the answers that name no node."""


class DescribeCluster:
    """Answers from the metadata image."""

    def __init__(self, image: MetadataImage, advertised: Advertised) -> None:
        self._image = image
        self._advertised = advertised

    def handle(self, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
        """Describe the cluster; refuse any endpoint type but that of brokers."""
        if request.endpoint_type == ENDPOINT_CONTROLLER:
            return _refused(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type BROKER, "
                "but we wanted an endpoint of type CONTROLLER",
            )
        if request.endpoint_type != ENDPOINT_BROKER:
            return _refused(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"Unsupported endpoint type {request.endpoint_type}",
            )
        image = self._image
        response = DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=image.controller,
            brokers=[
                DescribeClusterBroker(broker_id=node, host=host, port=port, rack=rack)
                for node, host, port, rack in self._advertised.brokers(image, call.client)
            ],
        )
        if request.include_fenced_brokers:
            response.brokers += _fenced(image)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response


def _fenced(image: MetadataImage) -> list[DescribeClusterBroker]:
    """Return the nodes that belong to the cluster and are down. Where they were is not kept."""
    return [
        DescribeClusterBroker(broker_id=node, host="", port=NO_PORT, is_fenced=True)
        for node in sorted(image.known - image.brokers.keys())
    ]


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=[]
    )
