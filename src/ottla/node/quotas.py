"""The quotas of a node: who changes them, and who holds clients to them while there are any.

Owns when the room of quotas is loaded: a node that has never had a quota does not know it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.config import quota as options
from ottla.config.config import Config
from ottla.config.files import listeners_of
from ottla.config.security import PLAINTEXT
from ottla.environment import Environment
from ottla.handlers.router import Router
from ottla.ids import QuotaEntity
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.network.listener import Listener
from ottla.node.configuration import Configuration
from ottla.node.data import Data

if TYPE_CHECKING:
    from ottla.cluster.client_quotas import ClientQuotas
    from ottla.handlers.quotas import Quotas
    from ottla.quota.connections import AcceptRates, ConnectionRates
    from ottla.quota.rate import Windows


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
        self._clock = environment.clock
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
        self._router.admit = self._of_clients.admit if len(self._of_clients) else None

    def _made(self) -> Quotas:
        from ottla.handlers.quotas import Quotas  # noqa: PLC0415 - on demand
        from ottla.quota.rate import Windows  # noqa: PLC0415 - on demand

        config = self._config
        controllers = Windows(
            config[options.CONTROLLER_QUOTA_WINDOW_NUM],
            config[options.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
        )
        return Quotas(windows_of(config), controllers, self._clock)


class ConnectionRatesInForce:
    """Follows the metadata, and stands at the listeners while an address has a quota."""

    def __init__(self, listener: Listener, environment: Environment, config: Config) -> None:
        self._listener = listener
        self._clock = environment.waits_clock
        self._config = config
        self._rates: ConnectionRates | None = None

    def begin(self, data: Data) -> None:
        """Take the quotas that there are, and follow."""
        image = data.follower.image
        self._take(image, image.quotas)
        data.follower.add_listener(self._follow)

    def _follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._take(image, delta.quotas)

    def _take(self, image: MetadataImage, changed: Iterable[QuotaEntity]) -> None:
        for entity in changed:
            if entity.ip is None:
                continue
            if self._rates is None:
                from ottla.quota.connections import ConnectionRates  # noqa: PLC0415 - on demand

                self._rates = ConnectionRates(windows_of(self._config))
            bounds = image.quotas.get(entity, {})
            self._rates.change(entity.ip, bounds.get("connection_creation_rate"))
        if self._rates is not None:
            self._listener.arrive = self._arrive if len(self._rates) else None

    def _arrive(self, address: str) -> int:
        assert self._rates is not None, "there is a quota"
        return self._rates.arrive(address, int(self._clock.monotonic() * 1000))


class AcceptRatesInForce:
    """Follows the configuration, and holds the listeners to the rates at which they accept."""

    def __init__(
        self, listener: Listener, environment: Environment, configuration: Configuration
    ) -> None:
        self._listener = listener
        self._clock = environment.waits_clock
        self._configuration = configuration
        served = listeners_of(configuration.at_start)
        self._names = [one.endpoint.name for one in served]
        plain = [one.endpoint.name for one in served if one.protocol == PLAINTEXT]
        self._spared = plain[0] if plain and len(served) > 1 else None
        self._rates: AcceptRates | None = None
        self._bounds: dict[str, int] = {}
        configuration.listeners.append(self._take)
        self._take()

    def _take(self) -> None:
        config = self._configuration.in_force
        rates = options.accept_rates_of(config, self._names)
        if rates == self._bounds:
            return
        self._bounds = rates
        if self._rates is not None:
            self._rates.change(windows_of(config), rates)
        elif rates:
            from ottla.quota.connections import AcceptRates  # noqa: PLC0415 - on demand

            self._rates = AcceptRates(windows_of(config), rates, self._spared)
        self._listener.pace = self._accept if rates else None
        self._listener.let_in_who_waits()

    def _accept(self, listener: str) -> int:
        assert self._rates is not None, "there is a rate"
        return self._rates.accept(listener, int(self._clock.monotonic() * 1000))


def windows_of(config: Config) -> Windows:
    """Return the windows of client quotas."""
    from ottla.quota.rate import Windows  # noqa: PLC0415 - on demand

    return Windows(
        config[options.QUOTA_WINDOW_NUM], config[options.QUOTA_WINDOW_SIZE_SECONDS] * 1000
    )
