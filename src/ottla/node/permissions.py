"""Builds what decides who may do what. Loaded only by a node with an authorizer."""

from ottla.cluster.acls import Acls
from ottla.config import authorization as options
from ottla.config.broker import AUTO_CREATE_TOPICS_ENABLE, DELETE_TOPIC_ENABLE
from ottla.environment import Environment
from ottla.handlers.authorization.guarded import Node
from ottla.handlers.authorization.making import Authorization, authorization_of
from ottla.handlers.refusals import Refusals
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.security.authorizer import Authorizer


def permissions_of(
    data: Data, environment: Environment, configuration: Configuration
) -> Authorization:
    """Return what guards this node, by the ACLs that the metadata has."""
    config = configuration.at_start
    return authorization_of(
        Authorizer(
            config[options.SUPER_USERS].listed,
            is_open=config[options.ALLOW_EVERYONE_IF_NO_ACL_FOUND],
        ),
        data.follower,
        Acls(data.keys, data.follower, acls_max=config[options.ACLS_MAX]),
        Refusals(environment.clock),
        Node(
            configuration.node_id,
            data.follower.image,
            auto_create=config[AUTO_CREATE_TOPICS_ENABLE],
            may_delete=config[DELETE_TOPIC_ENABLE],
        ),
    )
