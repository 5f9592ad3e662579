"""Questions to a schema registry over HTTP: who asks, how often, and what an answer means.

Owns authentication, retries and the translation of errors. Blocks, within a bound. Knows paths and
JSON, no schemas. Source: Confluent's Schema Registry API, "Errors".
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.client.library.failures import BadArgument
from ottla.env.blocking import BlockingClock
from ottla.env.rng import SystemRng
from ottla.env.tls import TlsFiles
from ottla.env.web import WebFailed, fetch
from ottla.schemas.schema import RegistryError

ANSWER_BYTES_MAX = 16 << 20
ATTEMPTS = 4
"""How often all addresses are tried, before a registry counts as away."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 2.0
_FIXES = {
    0: "is the registry started, and its URL right?",
    401: "check the registry's user name and password, or token",
    403: "the user may not do this at the registry",
    404: "is it the right registry, and is the schema registered?",
    409: "change the schema so that it is compatible, or the subject's compatibility",
    422: "does the registry know this kind of schema, and is the schema right?",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where a registry is, and as whom it is asked."""

    urls: tuple[str, ...]
    """Without credentials, and without a slash at the end."""
    authorization: Callable[[], str] | None = field(default=None, repr=False)
    """Returns the header's value."""
    tls: TlsFiles = field(default_factory=TlsFiles)
    timeout_seconds: float = 10.0
    """Bounds one question with all its tries."""


def access_of(
    url: str | Sequence[str],
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | Callable[[], str] | None = None,
    tls: TlsFiles | None = None,
    timeout_seconds: float = 10.0,
) -> Access:
    """Return what the arguments mean. ``url``: one, several, or several between commas.

    Raises BadArgument.
    """
    given = url.split(",") if isinstance(url, str) else list(url)
    urls = []
    for each in given:
        place, user = _without_user(each.strip())
        urls.append(place)
        if user is not None and username is None:
            username, password = user
    if not urls:
        raise BadArgument("the registry's URL", "there is none")
    if username is not None and token is not None:
        raise BadArgument("the registry's login", "either a user name or a token")
    if not timeout_seconds > 0:
        raise BadArgument("the registry's timeout", f"{timeout_seconds} is no time in seconds")
    authorization = None
    if username is not None:
        pair = f"{username}:{password or ''}".encode()
        basic = f"Basic {base64.b64encode(pair).decode()}"
        authorization = lambda: basic  # noqa: E731 - beside the other one
    elif token is not None:
        authorization = lambda: f"Bearer {token() if callable(token) else token}"  # noqa: E731
    return Access(tuple(urls), authorization, tls or TlsFiles(), timeout_seconds)


def _without_user(url: str) -> tuple[str, tuple[str, str] | None]:
    what = "the registry's URL"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadArgument(what, str(error)) from None
    if parts.scheme not in ("http", "https") or not host:
        shown = parts.netloc.rpartition("@")[2] or parts.path
        raise BadArgument(what, f"expected http://host:port, found {shown!r}")
    user = None
    if parts.username is not None:
        user = unquote(parts.username), unquote(parts.password or "")
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return urlunsplit(place).rstrip("/"), user


class Rest:
    """Asks one registry. For use from any thread."""

    def __init__(self, access: Access, clock: BlockingClock | None = None) -> None:
        self._access = access
        self._clock = clock or BlockingClock()
        self._rng = SystemRng()

    @property
    def clock(self) -> BlockingClock:
        """The time that pauses are counted by."""
        return self._clock

    def ask(self, what: str, path: str, *, method: str = "GET", body: Any = None) -> Any:
        """Return the answer's JSON. ``body``: sent as JSON; None: nothing. Raises RegistryError.

        Tries again, at the other URLs too, while the registry does not answer or says that the
        fault is its own. Each question may be asked twice without harm.
        """
        data = None if body is None else json.dumps(body).encode()
        ends = self._clock.monotonic() + self._access.timeout_seconds
        failed = WebFailed("no time was left")
        for attempt in range(ATTEMPTS):
            if attempt:
                pause = min(PAUSE_SECONDS * 2**attempt, PAUSE_SECONDS_MAX)
                pause *= 0.5 + self._rng.random_below(1000) / 2000
                self._clock.sleep(max(min(pause, ends - self._clock.monotonic()), 0))
            for url in self._access.urls:
                left = ends - self._clock.monotonic()
                if left <= 0:
                    raise _failure(what, failed)
                try:
                    return self._read(what, self._fetch(url + path, method, data, left))
                except WebFailed as error:
                    failed = error
                    if not _may_pass(error):
                        raise _failure(what, error) from error
        raise _failure(what, failed) from failed

    def _fetch(self, url: str, method: str, data: bytes | None, seconds: float) -> bytes:
        headers = {}
        if data is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self._access.authorization is not None:
            headers["Authorization"] = self._access.authorization()
        return fetch(
            url,
            seconds=seconds,
            bytes_max=ANSWER_BYTES_MAX,
            tls=self._access.tls,
            body=data,
            headers=headers,
            method=method,
        )

    def _read(self, what: str, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            why = "the answer is no JSON"
            raise RegistryError(what, why, fix="is it a schema registry?", status=200) from error


def _may_pass(error: WebFailed) -> bool:
    """Whether another try may succeed: a registry that is away, busy, or between two leaders."""
    return error.status in (0, 408, 429) or error.status >= 500


def _failure(what: str, error: WebFailed) -> RegistryError:
    code: int | None = None
    said = ""
    try:
        found = json.loads(error.body)
        code, said = int(found["error_code"]), str(found["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        said = error.body.decode(errors="replace").strip()
    why = f"{error}: {said}" if said else str(error)
    fix = _FIXES.get(error.status, "")
    return RegistryError(what, why[:2000], fix=fix, status=error.status, error_code=code)
