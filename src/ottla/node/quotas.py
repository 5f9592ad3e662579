"""The quotas of a node: who changes them, and who holds clients to them while there are any.

Owns when the room of quotas is loaded: a node that has never had a quota does not know it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.config import quota as options
from ottla.config.config import Config
from ottla.environment import Environment
from ottla.handlers.gate import let_pass
from ottla.handlers.router import Router
from ottla.ids import QuotaEntity
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.node.configuration import Configuration
from ottla.node.data import Data

if TYPE_CHECKING:
    from ottla.cluster.client_quotas import ClientQuotas
    from ottla.handlers.quotas import Quotas


def client_quotas_of(data: Data, configuration: Configuration) -> ClientQuotas:
    """Return what changes and describes the cluster's quotas."""
    from ottla.cluster.client_quotas import ClientQuotas  # noqa: PLC0415 - on demand

    return ClientQuotas(
        data.store,
        data.keys,
        data.follower,
        entities_max=configuration.at_start[options.CLIENT_QUOTAS_MAX],
    )


class QuotasInForce:
    """Follows the metadata, and stands at the router's gate while a client has a quota."""

    def __init__(self, router: Router, environment: Environment, config: Config) -> None:
        self._router = router
        self._clock = environment.waits_clock
        self._config = config
        self._of_clients: Quotas | None = None

    def begin(self, data: Data) -> None:
        """Take the quotas that there are, and follow."""
        image = data.follower.image
        self._take(image, image.quotas)
        data.follower.add_listener(self._follow)

    def _follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._take(image, delta.quotas)

    def _take(self, image: MetadataImage, changed: Iterable[QuotaEntity]) -> None:
        of_clients = [entity for entity in changed if entity.ip is None]
        if not of_clients:
            return
        if self._of_clients is None:
            self._of_clients = self._made()
        self._of_clients.change((entity, image.quotas.get(entity, {})) for entity in of_clients)
        self._router.admit = self._of_clients.admit if len(self._of_clients) else let_pass

    def _made(self) -> Quotas:
        from ottla.handlers.quotas import Quotas  # noqa: PLC0415 - on demand
        from ottla.quota.rate import Windows  # noqa: PLC0415 - on demand

        config = self._config
        return Quotas(
            Windows(
                config[options.QUOTA_WINDOW_NUM], config[options.QUOTA_WINDOW_SIZE_SECONDS] * 1000
            ),
            Windows(
                config[options.CONTROLLER_QUOTA_WINDOW_NUM],
                config[options.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
            ),
            self._clock,
        )
