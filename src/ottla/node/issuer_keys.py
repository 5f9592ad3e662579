"""The keys of those who issue tokens: fetched at the start, renewed, asked for when one is missing.

Owns when keys are fetched, and how often at most: clients who name keys that nobody has must not
make the broker burden the issuer. Fetching is a thread's work, one request at a time, bounded in
time and size; logins go on with the keys that are known. Loaded only when a listener takes tokens.
Source: Kafka's broker configuration reference (sasl.oauthbearer.jwks.*); KIP-768.
"""

import logging
from collections.abc import Callable

from ottla.config.oauth import TokenRules
from ottla.env.clock import Clock, Timer, pause
from ottla.env.executor import Executor, run
from ottla.security.tokens import KeySet, KeysUnusable, read_key_set

logger = logging.getLogger(__name__)

FETCH_SECONDS = 10.0
FETCH_BYTES_MAX = 256 * 1024
"""Some hundred keys; to read as much takes a thread a millisecond that the loop lacks."""
MISSED_SECONDS = 60.0
"""An id that was not among the keys is asked for once in this time."""
MISSED_MAX = 16
"""How many such ids are remembered; while they are, no other is asked for."""
ON_DEMAND_SECONDS = 5.0
"""Between two fetches for ids that are missing."""

Fetch = Callable[[], bytes]
"""Blocks; returns the JWKS document. Raises OSError."""


class IssuerKeysUnavailable(OSError):
    """The keys could not be had at the start; the text says whence and why."""


class IssuerKeys:
    """The keys of one issuer, as they are known now."""

    def __init__(self, rules: TokenRules, fetch: Fetch, executor: Executor, clock: Clock) -> None:
        self._rules = rules
        self._fetch = fetch
        self._executor = executor
        self._clock = clock
        self.keys = KeySet()
        """Use: replaced as a whole, by each good fetch. Invariant: never empty once begun."""
        self._timer: Timer | None = None
        self._is_fetching = False
        self._is_closed = False
        self._missed: dict[str, float] = {}
        """When each missing id was asked for."""
        self._demanded = float("-inf")
        self._pause_ms = rules.retry_ms
        self.fetch_failures = 0

    async def begin(self) -> None:
        """Fetch the keys, trying again for a while. Raises IssuerKeysUnavailable."""
        ends = self._clock.monotonic() + self._rules.retry_max_ms / 1000
        pause_ms = self._rules.retry_ms
        while True:
            try:
                self.keys = await run(self._executor, self._fetch_keys)
                break
            except (OSError, KeysUnusable) as error:
                if self._clock.monotonic() + pause_ms / 1000 > ends:
                    why = f"the keys of {self._rules.jwks_url} cannot be had: {error}"
                    raise IssuerKeysUnavailable(why) from error
            await pause(self._clock, pause_ms / 1000)
            pause_ms *= 2
        self._renew_after(self._rules.refresh_ms)

    def miss(self, key_id: str) -> None:
        """Note that a token names a key that is not known; perhaps begin to fetch the keys."""
        now = self._clock.monotonic()
        for each, when in list(self._missed.items()):
            if now - when >= MISSED_SECONDS:
                del self._missed[each]
        if (
            key_id in self._missed
            or len(self._missed) >= MISSED_MAX
            or self._is_fetching
            or now - self._demanded < ON_DEMAND_SECONDS
        ):
            return
        self._missed[key_id] = self._demanded = now
        self._renew()

    def close(self) -> None:
        """Fetch no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _renew_after(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(milliseconds / 1000, self._renew)

    def _renew(self) -> None:
        if not self._is_fetching and not self._is_closed:
            self._is_fetching = True
            self._executor.submit(self._fetch_keys, self._fetched)

    def _fetch_keys(self) -> KeySet:
        """On a thread: to read so much of somebody's JSON takes a while."""
        return read_key_set(self._fetch())

    def _fetched(self, keys: KeySet | None, error: BaseException | None) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        try:
            if error is not None:
                raise error
            assert keys is not None, "a fetch returns keys, or fails"
            self.keys = keys
        except (OSError, KeysUnusable) as why:
            self.fetch_failures += 1
            logger.warning("the keys of %s stay as they are: %s", self._rules.jwks_url, why)
            self._renew_after(self._pause_ms)
            self._pause_ms = min(self._pause_ms * 2, self._rules.retry_max_ms)
            return
        self._pause_ms = self._rules.retry_ms
        self._renew_after(self._rules.refresh_ms)
