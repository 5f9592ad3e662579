"""TLS of a node's listeners: their certificates, and who their clients are.

Owns the certificate that each listener shows at the moment, and how it is put between a listener's
sockets and its connections. Loaded only when a listener has TLS.
"""

import logging
import time
from functools import partial

from ottla.config import security as options
from ottla.config.mapping_rules import MappingRules, NoRuleFits
from ottla.config.security import ServedListener
from ottla.env.cpu_limit import CpuLimit, TooLong
from ottla.env.executor import run
from ottla.env.pem import first_certificate_of
from ottla.env.server_tls import Engine, ServerTls, ServerTlsFiles, ServerTlsUnusable
from ottla.environment import Environment
from ottla.errors import CloseConnection
from ottla.handlers.refusals import Refusals
from ottla.ids import ANONYMOUS, Principal
from ottla.network.entrance import Entrance
from ottla.network.handshakes import Handshakes
from ottla.network.listener import Cover
from ottla.network.tls import TlsLayer
from ottla.node.configuration import Configuration
from ottla.security.distinguished_name import NameUnreadable, subject_of, validity_of

logger = logging.getLogger(__name__)


class ShownCertificate:
    """What one listener shows its clients now."""

    def __init__(self, files: ServerTlsFiles, tls: ServerTls) -> None:
        self.files = files
        self.tls = tls
        """Use: replaced as a whole; connections keep what they began with."""
        self.trouble = ""
        """Use: why the files could not be used last time; "": they could."""

    def open_engine(self) -> Engine:
        """Return the engine of a new connection."""
        return self.tls.open()


class Certificates:
    """The certificates of all listeners with TLS."""

    def __init__(self, environment: Environment, configuration: Configuration) -> None:
        refusals = Refusals(environment.clock)
        self._executor = environment.executor
        self._clock = environment.clock
        self._handshakes = Handshakes(
            environment.login_executor or environment.executor,
            environment.waits_clock,
            seconds=configuration.at_start[options.AUTHENTICATION_TIMEOUT_MS] / 1000,
            note=lambda host, why: refusals.note(host, "", why),
        )
        self._shown: dict[str, ShownCertificate] = {}
        """By the listener's name."""

    async def cover_of(self, served: ServedListener) -> Cover:
        """Return what stands before the connections of a listener with TLS.

        Raises ServerTlsUnusable, an OSError.
        """
        files = served.tls
        assert files is not None, "a listener with TLS"
        tls = await run(self._executor, partial(ServerTls.load, files))
        if why := self._why_invalid(tls):
            logger.warning("listener %s: %s", served.endpoint.name, why)
        shown = self._shown[served.endpoint.name] = ShownCertificate(files, tls)
        return partial(TlsLayer, handshakes=self._handshakes, open_engine=shown.open_engine)

    async def renew(self) -> None:
        """Show new connections what the files have now; keep the old where that cannot be used."""
        for listener, shown in self._shown.items():
            try:
                tls = await run(self._executor, partial(shown.tls.reloaded, shown.files))
                self._check(tls, shown.tls)
            except ServerTlsUnusable as error:
                if str(error) != shown.trouble:
                    logger.warning("listener %s keeps its certificate: %s", listener, error)
                shown.trouble = str(error)
                continue
            shown.trouble = ""
            if tls is not None:
                shown.tls = tls
                logger.info("listener %s has new certificates", listener)

    def _check(self, tls: ServerTls | None, shown: ServerTls) -> None:
        """Raise ServerTlsUnusable for a certificate that is not valid, in the place of one that is.

        No client would take it. It is looked at again with each renewal.
        """
        why = "" if tls is None else self._why_invalid(tls)
        if why and not self._why_invalid(shown):
            raise ServerTlsUnusable(why)

    def _why_invalid(self, tls: ServerTls) -> str:
        """Return why the certificate is not valid now; "": it is, or nobody can tell."""
        certificate = first_certificate_of(tls.texts.chain_and_key)
        try:
            begin, end = validity_of(certificate or b"")
        except NameUnreadable:
            return ""
        now = self._clock.wall_ms() / 1000
        if now > end:
            return f"the certificate has expired, at {_date(end)}"
        if now < begin:
            return f"the certificate is not valid before {_date(begin)}"
        return ""


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


NAME_SECONDS_MAX = 0.1
"""Of the processor, for what the rules make of one name; usual ones take some microseconds."""
SLOW_NAMES_MAX = 1000


class CertificateNames:
    """Who the clients of one listener are by their certificates."""

    def __init__(self, rules: MappingRules) -> None:
        self._rules = rules
        self._limit = CpuLimit(NAME_SECONDS_MAX)
        self._slow: dict[str, None] = {}
        """Use: the last names that took the rules too long, which need not be tried again."""

    def principal_of(self, entrance: Entrance) -> Principal:
        """Return who a client is. Raises CloseConnection when no rule fits its certificate."""
        certificate = entrance.certificate
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", self._user_of(subject_of(certificate)))
        except (NoRuleFits, NameUnreadable) as error:
            raise CloseConnection(str(error)) from None

    def _user_of(self, name: str) -> str:
        if name not in self._slow:
            try:
                return self._limit.run(partial(self._rules.user_of, name))
            except TooLong:
                if len(self._slow) >= SLOW_NAMES_MAX:
                    del self._slow[next(iter(self._slow))]
                self._slow[name] = None
                why = "ssl.principal.mapping.rules takes too long for the name %r in a certificate"
                logger.warning(why, name[:200])
        raise NoRuleFits("its name takes the rules too long")
