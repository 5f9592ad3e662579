"""``SchemaRegistry``: a schema registry with Confluent's API (Confluent's, Karapace, Apicurio).

Owns the calls and what is kept of their answers. Blocks; ``AsyncSchemaRegistry`` does not. Source:
Confluent's Schema Registry API reference.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote

from ottla.client.library.failures import BadArgument
from ottla.env.tls import TlsFiles
from ottla.schemas.kept import Kept
from ottla.schemas.rest import Access, Rest, access_of
from ottla.schemas.schema import Registered, RegistryError, Schema, as_json, read_schema, whole

Value = TypeVar("Value")
KEPT = 1_000
_LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_PREFIX = "schema.registry."


class SchemaRegistry:
    """A schema registry. For use from any thread; nothing has to be closed.

    A schema never changes under its id, nor under its version: both are asked for once. Every call
    raises RegistryError.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        ca: str | None = None,
        timeout: float = 10.0,
        kept: int = KEPT,
    ) -> None:
        """Make a client, which connects at its first call.

        ``url``: ``http://host:port``; several in a list or between commas are tried in turn.
        ``username`` and ``password`` (or both in the URL), or ``token``, which may be a function
        that returns it. ``ca``: a PEM file with the certificates to trust, instead of the system's.
        ``timeout``: seconds for a call with its retries. ``kept``: how many schemas are remembered.
        Raises BadArgument.
        """
        tls = TlsFiles(ca_file=ca)
        self._begin(
            access_of(
                url, username=username, password=password, token=token, tls=tls,
                timeout_seconds=timeout,
            ),
            kept,
        )  # fmt: skip

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return a registry by the keys of Confluent's clients. Raises BadArgument.

        ``url``, ``basic.auth.user.info``, ``bearer.auth.token``, ``ssl.ca.location``,
        ``ssl.certificate.location``, ``ssl.key.location``, ``ssl.key.password``, ``timeout``
        (seconds), ``cache.capacity``; each with ``schema.registry.`` in front or without.
        """
        given = {str(key).removeprefix(_PREFIX): value for key, value in config.items()}
        found = cls.__new__(cls)
        kept = _whole_option("cache.capacity", given.pop("cache.capacity", KEPT))
        found._begin(_read_config(given), kept)  # noqa: SLF001 - its own
        return found

    def _begin(self, access: Access, kept: int) -> None:
        if kept < 16:
            raise BadArgument("the registry's memory", f"kept={kept} is less than 16")
        self._rest = Rest(access)
        self._by_id: Kept[tuple[int, str], Schema] = Kept(kept)
        self._by_version: Kept[tuple[str, int, str], Registered] = Kept(kept)
        self._known: Kept[tuple[str, str, Schema, bool], Registered] = Kept(kept)
        self.kept = kept
        """How many schemas are remembered."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, by the clock of the registry's client."""
        return self._rest.clock.monotonic()

    # -- schemas -----------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Register ``schema``, unless it is already; return its id."""
        return self._known_as("register", subject, schema, normalize=normalize)

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Return where ``schema`` is registered in ``subject``; raises if it is not."""
        return self._known_as("look up", subject, schema, normalize=normalize)

    def by_id(self, schema_id: int, *, form: str = "") -> Schema:
        """Return a schema. ``form`` "serialized": of Protobuf the descriptor in base64."""
        kept = self._by_id.get((schema_id, form))
        if kept is not None:
            return kept
        what = f"get schema {schema_id}"
        query = f"?format={form}" if form else ""
        answer = self._rest.ask(what, f"/schemas/ids/{schema_id}{query}")
        found: Schema = _read(what, answer, read_schema)
        self._by_id.put((schema_id, form), found)
        return found

    def version(self, subject: str, version: int, *, form: str = "") -> Registered:
        """Return one version of ``subject``, deleted ones too: others may still refer to it."""
        kept = self._by_version.get((subject, version, form))
        if kept is None:
            kept = self._version(subject, str(version), form, deleted=True)
            self._by_version.put((subject, version, form), kept)
        return kept

    def latest(self, subject: str, *, form: str = "") -> Registered:
        """Return the newest version of ``subject``. Asks each time."""
        return self._version(subject, "latest", form, deleted=False)

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        what = "list the subjects"
        return _read(what, self._rest.ask(what, "/subjects"), _texts)

    def versions(self, subject: str) -> list[int]:
        """Return the versions of ``subject``."""
        what = f"list the versions of {subject}"
        return _read(what, self._rest.ask(what, f"/subjects/{_quoted(subject)}/versions"), _wholes)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete ``subject``; return its versions. ``permanent``: of a subject deleted before."""
        what = f"delete {subject}"
        query = "?permanent=true" if permanent else ""
        path = f"/subjects/{_quoted(subject)}{query}"
        found = _read(what, self._rest.ask(what, path, method="DELETE"), _wholes)
        self._known.clear()
        self._by_version.clear()
        return found

    # -- compatibility -----------------------------------------------------------------------------

    def incompatibilities(
        self, subject: str, schema: Schema, *, version: int | None = None
    ) -> list[str]:
        """Return why ``schema`` cannot follow ``version`` (None: the newest); empty: it can."""
        what = f"compare a schema with {subject}"
        at = "latest" if version is None else str(version)
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{at}?verbose=true"
        answer = self._rest.ask(what, path, method="POST", body=as_json(schema))
        return _read(what, answer, _reasons)

    def compatibility(self, subject: str | None = None) -> str:
        """Return the level of ``subject`` ("BACKWARD", ...), of all if it has none of its own."""
        what = f"get the compatibility of {subject or 'all subjects'}"
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        answer = self._rest.ask(what, path)
        return _read(what, answer, lambda found: str(found["compatibilityLevel"]))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of ``subject``; None: of all that have none of their own."""
        if level not in _LEVELS:
            raise BadArgument("the compatibility", f"{level!r} is none of {', '.join(_LEVELS)}")
        what = f"set the compatibility of {subject or 'all subjects'}"
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._rest.ask(what, path, method="PUT", body={"compatibility": level})

    # -- the inside --------------------------------------------------------------------------------

    def _known_as(self, do: str, subject: str, schema: Schema, *, normalize: bool) -> Registered:
        key = (do, subject, schema, normalize)
        kept = self._known.get(key)
        if kept is not None:
            return kept
        what = f"{do} a schema of {subject}"
        path = f"/subjects/{_quoted(subject)}" + ("/versions" if do == "register" else "")
        query = "?normalize=true" if normalize else ""
        answer = self._rest.ask(what, path + query, method="POST", body=as_json(schema))

        def read(found: Any) -> Registered:
            version = found.get("version")
            return Registered(
                whole(found["id"]), subject, None if version is None else whole(version), schema
            )

        known = _read(what, answer, read)
        self._known.put(key, known)
        return known

    def _version(self, subject: str, version: str, form: str, *, deleted: bool) -> Registered:
        what = f"get version {version} of {subject}"
        options = (["deleted=true"] if deleted else []) + ([f"format={form}"] if form else [])
        query = f"?{'&'.join(options)}" if options else ""
        answer = self._rest.ask(what, f"/subjects/{_quoted(subject)}/versions/{version}{query}")

        def read(found: Any) -> Registered:
            return Registered(
                whole(found["id"]), subject, whole(found["version"]), read_schema(found)
            )

        return _read(what, answer, read)


def _read(what: str, answer: Any, read: Callable[[Any], Value]) -> Value:
    try:
        return read(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"the answer is not understood: {str(answer)[:200]}"
        raise RegistryError(what, why, fix="is it a schema registry?", status=200) from error


def _texts(answer: Any) -> list[str]:
    if not isinstance(answer, list):
        raise TypeError("no list")
    return [str(each) for each in answer]


def _wholes(answer: Any) -> list[int]:
    if not isinstance(answer, list):
        raise TypeError("no list")
    return [whole(each) for each in answer]


def _reasons(answer: Any) -> list[str]:
    if answer["is_compatible"] is True:
        return []
    return [str(each) for each in answer.get("messages") or ["the registry does not say why"]]


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _whole_option(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadArgument(f"the setting {name}", f"{value!r} is no whole number") from None


_CONFIG = (
    "url",
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "timeout",
)


def _read_config(given: Mapping[str, Any]) -> Access:
    for key in given:
        if key not in _CONFIG:
            why = "there is no such key"
            raise BadArgument(f"the setting {key}", why, fix=f"known are {', '.join(_CONFIG)}")
    if "url" not in given:
        raise BadArgument("the setting schema.registry.url", "it is missing")
    username: str | None = None
    password: str | None = None
    if given.get("basic.auth.user.info"):
        username, _, password = str(given["basic.auth.user.info"]).partition(":")
    try:
        seconds = float(given.get("timeout", 10.0))
    except ValueError:
        raise BadArgument("the setting timeout", f"{given['timeout']!r} is no number") from None
    tls = TlsFiles(
        ca_file=given.get("ssl.ca.location"),
        certificate_file=given.get("ssl.certificate.location"),
        key_file=given.get("ssl.key.location"),
        key_password=given.get("ssl.key.password"),
    )
    return access_of(
        given["url"],
        username=username,
        password=password,
        token=given.get("bearer.auth.token"),
        tls=tls,
        timeout_seconds=seconds,
    )
