"""``SchemaRegistry``: a schema registry for tests, in this process and in memory.

    with SchemaRegistry() as registry:
        run_app(schema_registry_url=registry.url)
        assert registry.subjects() == ["orders-value"]

Owns subjects, versions and ids as Confluent's registry has them. It judges no compatibility: the
level is NONE, and no other can be set. Source: Confluent's Schema Registry API reference.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from ottla.env.blocking import new_lock
from ottla.env.web_server import WebRequest, WebServer

SCHEMAS_MAX = 100_000
_KINDS = ("AVRO", "JSON", "PROTOBUF")


class _Refused(Exception):
    """An answer with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Kept(NamedTuple):
    text: str
    kind: str
    references: tuple[tuple[str, str, int], ...]


@dataclass(slots=True)
class _Subject:
    versions: dict[int, int] = field(default_factory=dict)
    """Use: the id of each version, deleted ones too. *Invariant:* versions ascend."""
    deleted: set[int] = field(default_factory=set)


class SchemaRegistry:
    """A registry. A context manager; or ``start`` and ``stop`` it."""

    __test__ = False  # Not for pytest to collect.

    def __init__(self) -> None:
        self._lock = new_lock()
        self._schemas: list[_Kept] = []
        self._ids: dict[_Kept, int] = {}
        self._subjects: dict[str, _Subject] = {}
        self._server = WebServer(self._answer)
        self.url = ""
        """``http://127.0.0.1:port``, while it runs."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start; returns when it answers."""
        self.url = f"http://127.0.0.1:{self._server.start()}"
        return self

    def stop(self) -> None:
        """Stop. What was registered is still there after another ``start``, at another port."""
        self._server.stop()

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        with self._lock:
            return self._names(WebRequest("GET", (), {}, b""))

    # -- HTTP --------------------------------------------------------------------------------------

    def _answer(self, asked: WebRequest) -> tuple[int, bytes]:
        try:
            with self._lock:
                return 200, json.dumps(self._route(asked)).encode()
        except _Refused as error:
            said = {"error_code": error.code, "message": str(error)}
            status = error.code if error.code < 1000 else error.code // 100
            return status, json.dumps(said).encode()

    def _route(self, asked: WebRequest) -> Any:  # noqa: ANN401 - JSON
        for method, path, serve in self._routes():
            if method == asked.method and len(path) == len(asked.path):
                pairs = list(zip(path, asked.path, strict=True))
                if all(wanted in ("*", given) for wanted, given in pairs):
                    return serve(asked, *[given for wanted, given in pairs if wanted == "*"])
        raise _Refused(404, f"HTTP 404: no {asked.method} of /{'/'.join(asked.path)}")

    def _routes(self) -> list[tuple[str, tuple[str, ...], Callable[..., Any]]]:
        return [
            ("GET", ("schemas", "ids", "*"), self._by_id),
            ("GET", ("schemas", "ids", "*", "versions"), self._places),
            ("GET", ("schemas", "types"), self._kinds),
            ("GET", ("subjects",), self._names),
            ("POST", ("subjects", "*"), self._look_up),
            ("DELETE", ("subjects", "*"), self._delete),
            ("GET", ("subjects", "*", "versions"), self._versions),
            ("POST", ("subjects", "*", "versions"), self._register),
            ("GET", ("subjects", "*", "versions", "*"), self._version),
            ("DELETE", ("subjects", "*", "versions", "*"), self._delete_version),
            ("POST", ("compatibility", "subjects", "*", "versions", "*"), self._compare),
            ("GET", ("config",), self._common_level),
            ("GET", ("config", "*"), self._level),
            ("PUT", ("config",), self._set_level),
            ("PUT", ("config", "*"), self._set_level),
        ]

    # -- schemas -----------------------------------------------------------------------------------

    def _by_id(self, asked: WebRequest, number: str) -> Any:  # noqa: ANN401 - JSON
        if not number.isdecimal() or not 0 < int(number) <= len(self._schemas):
            raise _Refused(40403, f"Schema {number} not found")
        return _said(self._schemas[int(number) - 1])

    def _kinds(self, asked: WebRequest) -> Any:  # noqa: ANN401 - JSON
        return list(_KINDS)

    def _places(self, asked: WebRequest, number: str) -> Any:  # noqa: ANN401 - JSON
        self._by_id(asked, number)
        return [
            {"subject": name, "version": version}
            for name, subject in self._subjects.items()
            for version, each in subject.versions.items()
            if each == int(number) and version not in subject.deleted
        ]

    def _register(self, asked: WebRequest, name: str) -> Any:  # noqa: ANN401 - JSON
        kept = self._read(asked)
        for _, subject_name, version in kept.references:
            there = self._subjects.get(subject_name)
            if there is None or version not in there.versions:
                why = f"no schema reference found for subject {subject_name} version {version}"
                raise _Refused(42201, f"Invalid schema: {why}")
        number = self._ids.get(kept)
        if number is None:
            if len(self._schemas) >= SCHEMAS_MAX:
                raise _Refused(50001, f"there are {SCHEMAS_MAX} schemas already")
            self._schemas.append(kept)
            number = self._ids[kept] = len(self._schemas)
        subject = self._subjects.setdefault(name, _Subject())
        for version, each in subject.versions.items():
            if each == number and version not in subject.deleted:
                return {"id": number, "version": version, **_said(kept)}
        version = max(subject.versions, default=0) + 1
        subject.versions[version] = number
        return {"id": number, "version": version, **_said(kept)}

    def _look_up(self, asked: WebRequest, name: str) -> Any:  # noqa: ANN401 - JSON
        kept = self._read(asked)
        subject = self._found(name, with_deleted=_is_true(asked, "deleted"))
        number = self._ids.get(kept)
        for version in self._shown(subject, _is_true(asked, "deleted")):
            if subject.versions[version] == number:
                return {"subject": name, "id": number, "version": version, **_said(kept)}
        raise _Refused(40403, "Schema not found")

    def _version(self, asked: WebRequest, name: str, wanted: str) -> Any:  # noqa: ANN401 - JSON
        subject = self._found(name, with_deleted=_is_true(asked, "deleted"))
        version = self._chosen(subject, wanted, with_deleted=_is_true(asked, "deleted"))
        number = subject.versions[version]
        said = _said(self._schemas[number - 1])
        return {"subject": name, "id": number, "version": version, **said}

    def _names(self, asked: WebRequest) -> list[str]:
        shown = _is_true(asked, "deleted")
        return sorted(name for name, each in self._subjects.items() if self._shown(each, shown))

    def _versions(self, asked: WebRequest, name: str) -> Any:  # noqa: ANN401 - JSON
        shown = _is_true(asked, "deleted")
        return self._shown(self._found(name, with_deleted=shown), shown)

    def _delete(self, asked: WebRequest, name: str) -> Any:  # noqa: ANN401 - JSON
        if not _is_true(asked, "permanent"):
            subject = self._found(name, with_deleted=False)
            gone = self._shown(subject, with_deleted=False)
            self._check_unused(name, gone)
            subject.deleted.update(gone)
            return gone
        subject = self._found(name, with_deleted=True)
        if self._shown(subject, with_deleted=False):
            why = f"Subject '{name}' was not deleted first before being permanently deleted"
            raise _Refused(40405, why)
        self._check_unused(name, list(subject.versions))
        del self._subjects[name]
        return list(subject.versions)

    def _delete_version(self, asked: WebRequest, name: str, wanted: str) -> Any:  # noqa: ANN401
        is_permanent = _is_true(asked, "permanent")
        subject = self._found(name, with_deleted=is_permanent)
        version = self._chosen(subject, wanted, with_deleted=is_permanent)
        self._check_unused(name, [version])
        if not is_permanent:
            subject.deleted.add(version)
        elif version in subject.deleted:
            del subject.versions[version]
            subject.deleted.discard(version)
        else:
            why = f"Subject '{name}' Version {version} was not deleted first"
            raise _Refused(40407, f"{why} before being permanently deleted")
        return version

    # -- compatibility -----------------------------------------------------------------------------

    def _compare(self, asked: WebRequest, name: str, wanted: str) -> Any:  # noqa: ANN401 - JSON
        self._read(asked)
        self._chosen(self._found(name, with_deleted=False), wanted, with_deleted=False)
        return {"is_compatible": True}

    def _common_level(self, asked: WebRequest) -> Any:  # noqa: ANN401 - JSON
        return {"compatibilityLevel": "NONE"}

    def _level(self, asked: WebRequest, name: str) -> Any:  # noqa: ANN401 - JSON
        if not _is_true(asked, "defaultToGlobal"):
            why = f"Subject '{name}' does not have subject-level compatibility configured"
            raise _Refused(40408, why)
        return {"compatibilityLevel": "NONE"}

    def _set_level(self, asked: WebRequest, *_: str) -> Any:  # noqa: ANN401 - JSON
        level = _json_of(asked).get("compatibility")
        if level != "NONE":
            why = f"this registry, for tests, judges no compatibility: {level!r} cannot be set"
            raise _Refused(42203, why)
        return {"compatibility": "NONE"}

    # -- the inside --------------------------------------------------------------------------------

    def _read(self, asked: WebRequest) -> _Kept:
        found = _json_of(asked)
        text, kind = found.get("schema"), found.get("schemaType") or "AVRO"
        if kind not in _KINDS:
            raise _Refused(422, f"Invalid schema type {kind}")
        if not isinstance(text, str) or not text:
            raise _Refused(42201, "Empty schema")
        if kind != "PROTOBUF":
            try:  # Schemas that differ in their spaces only are one.
                text = json.dumps(_plain(json.loads(text), kind), separators=(",", ":"))
            except (ValueError, RecursionError) as error:
                raise _Refused(42201, f"Invalid schema: {error}") from None
        try:
            references = tuple(
                (str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in found.get("references") or ()
            )
        except (TypeError, KeyError, ValueError) as error:
            raise _Refused(422, f"Invalid reference: {error}") from None
        return _Kept(text, kind, references)

    def _found(self, name: str, *, with_deleted: bool) -> _Subject:
        subject = self._subjects.get(name)
        if subject is None or not self._shown(subject, with_deleted):
            raise _Refused(40401, f"Subject '{name}' not found.")
        return subject

    def _chosen(self, subject: _Subject, wanted: str, *, with_deleted: bool) -> int:
        shown = self._shown(subject, with_deleted)
        if wanted in ("latest", "-1"):
            return shown[-1]
        if not wanted.isdecimal():
            raise _Refused(42202, f"The specified version '{wanted}' is not a valid version id.")
        if int(wanted) not in shown:
            raise _Refused(40402, f"Version {wanted} not found.")
        return int(wanted)

    @staticmethod
    def _shown(subject: _Subject, with_deleted: bool) -> list[int]:
        return [each for each in subject.versions if with_deleted or each not in subject.deleted]

    def _check_unused(self, name: str, versions: list[int]) -> None:
        """Refuse to delete what live schemas refer to."""
        for subject in self._subjects.values():
            for version in self._shown(subject, with_deleted=False):
                for _, where, at in self._schemas[subject.versions[version] - 1].references:
                    if where == name and at in versions:
                        raise _Refused(42206, f"One or more references exist to {name} {at}")


def _said(kept: _Kept) -> dict[str, Any]:
    found: dict[str, Any] = {"schema": kept.text}
    if kept.kind != "AVRO":
        found["schemaType"] = kept.kind
    if kept.references:
        names = ("name", "subject", "version")
        found["references"] = [dict(zip(names, each, strict=True)) for each in kept.references]
    return found


def _plain(schema: Any, kind: str) -> Any:  # noqa: ANN401 - JSON
    """Return a schema of Avro with ``{"type": "long"}`` as ``"long"``: they mean the same."""
    if kind == "AVRO" and isinstance(schema, dict):
        if schema.keys() == {"type"} and isinstance(schema["type"], str):
            return schema["type"]
        return {name: _plain(each, kind) for name, each in schema.items()}
    if kind == "AVRO" and isinstance(schema, list):
        return [_plain(each, kind) for each in schema]
    return schema


def _json_of(asked: WebRequest) -> dict[str, Any]:
    try:
        found = json.loads(asked.body)
    except (ValueError, RecursionError):
        raise _Refused(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise _Refused(400, "the body is no JSON object")
    return found


def _is_true(asked: WebRequest, name: str) -> bool:
    return asked.query.get(name) == "true"
