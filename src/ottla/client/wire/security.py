"""How a client secures its connections: TLS, SASL, both or neither; and the options that say so.

The names are Java's and librdkafka's, so that a working configuration can be brought along:

    security.protocol          PLAINTEXT | SSL | SASL_PLAINTEXT | SASL_SSL
    sasl.mechanism             PLAIN | SCRAM-SHA-256 | SCRAM-SHA-512 | OAUTHBEARER
    sasl.oauthbearer.*         where tokens come from: see ``oauth``
    sasl.jaas.config           Java's line with username and password, or
    sasl.username, sasl.password
    ssl.truststore.location, ssl.ca.location            PEM file of what to trust
    ssl.truststore.certificates, ssl.ca.pem             the same as text
    ssl.keystore.location, ssl.certificate.location     PEM file of this client's certificate
    ssl.keystore.certificate.chain, ssl.certificate.pem
    ssl.keystore.key, ssl.key.pem; ssl.key.location     its key, where it is not in the same file
    ssl.key.password, ssl.keystore.password
    ssl.endpoint.identification.algorithm               empty or none: any host name will do
    enable.ssl.certificate.verification                 false: any certificate will do
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.config.option import InvalidConfig
from ottla.env.tls import TlsFiles

if TYPE_CHECKING:
    from ottla.client.wire.oauth import TokenSource

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's names: TLS is called SSL."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who the client is, and how it proves it."""

    mechanism: str
    """One of MECHANISMS."""
    username: str
    password: str = field(repr=False)
    tokens: "TokenSource | None" = None
    """Where its tokens come from, with OAUTHBEARER; else None."""


@dataclass(frozen=True, slots=True)
class Security:
    """TLS when ``tls`` is given, SASL when ``sasl`` is."""

    tls: TlsFiles | None = None
    sasl: Credentials | None = None


NO_SECURITY = Security()


_FILES = {
    "ssl.truststore.location": "ca_file",
    "ssl.ca.location": "ca_file",
    "ssl.truststore.certificates": "ca_text",
    "ssl.ca.pem": "ca_text",
    "ssl.keystore.location": "certificate_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.keystore.certificate.chain": "certificate_text",
    "ssl.certificate.pem": "certificate_text",
    "ssl.key.location": "key_file",
    "ssl.keystore.key": "key_text",
    "ssl.key.pem": "key_text",
    "ssl.key.password": "key_password",
    "ssl.keystore.password": "key_password",
}
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_HOST = "ssl.endpoint.identification.algorithm"
_VERIFY = "enable.ssl.certificate.verification"
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_JAAS = "sasl.jaas.config"
_NAME = "sasl.username"
_PASSWORD = "sasl.password"  # noqa: S105 - the name of an option
_PROTOCOL = "security.protocol"

_OAUTH_NAMES = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.header.urlencode",
    "https.ca.location",
    "sasl.oauthbearer.method",
    "sasl.login.callback.handler.class",
    "ottla.oauthbearer.token.provider",
)
"""Those of ``oauth``, which is loaded for OAUTHBEARER only."""
NAMES = frozenset(
    (
        *(*_FILES, *_TYPES, _HOST, _VERIFY, *_MECHANISM, _JAAS, _NAME, _PASSWORD, _PROTOCOL),
        *_OAUTH_NAMES,
    )
)
"""Every option that ``read_security`` knows."""

_JAAS_LINE = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite)\b(?P<rest>.*?);?\s*", re.DOTALL
)
_JAAS_PAIR = re.compile(
    r"""\s*(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\s";]+))"""
)
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")


def read_security(texts: Mapping[str, str]) -> Security:
    """Return what the options in ``texts`` (no others) mean. Reads no file.

    Raises InvalidConfig: a value is impossible or missing, or a mechanism or a kind of file cannot
    be had.
    """
    protocol = texts.get(_PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise InvalidConfig(_PROTOCOL, protocol, f"expected one of {', '.join(PROTOCOLS)}")
    return Security(
        tls=_tls(texts) if protocol.endswith("SSL") else None,
        sasl=_sasl(texts, protocol) if protocol.startswith("SASL") else None,
    )


def _tls(texts: Mapping[str, str]) -> TlsFiles:
    for name in _TYPES:
        kind = texts.get(name, "PEM").strip().upper()
        if kind != "PEM":
            raise InvalidConfig(
                name,
                kind,
                "only PEM can be read here; "
                "'openssl pkcs12 -in STORE.p12 -nodes -out FILE.pem' makes it of a PKCS12 store, "
                "'keytool -importkeystore' that of a JKS one",
            )
    given = {field: texts[name] for name, field in _FILES.items() if texts.get(name)}
    has_key = "key_file" in given or "key_text" in given
    if has_key and not ("certificate_file" in given or "certificate_text" in given):
        raise InvalidConfig(
            "ssl.key.location", None, "ssl.key.location: a key is given, but no certificate for it"
        )
    files = TlsFiles(**given)  # type: ignore[arg-type]
    return files._replace(
        verify_host=texts.get(_HOST, "https").strip().lower() not in ("", "none"),
        verify_certificate=_boolean(texts, _VERIFY),
    )


def _boolean(texts: Mapping[str, str], name: str) -> bool:
    text = texts.get(name, "true").strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(name, text, "expected true or false")
    return text == "true"


def _sasl(texts: Mapping[str, str], protocol: str) -> Credentials:
    given = [name for name in _MECHANISM if name in texts]
    mechanism = texts[given[0]].strip().upper() if given else ""
    if mechanism not in MECHANISMS:
        what = f"{mechanism} cannot be had here" if mechanism else f"{protocol} needs a mechanism"
        why = f"{_MECHANISM[0]}: {what}; expected one of {', '.join(MECHANISMS)}"
        raise InvalidConfig(_MECHANISM[0], None, why)
    jaas = _read_jaas(texts[_JAAS]) if _JAAS in texts else None
    if mechanism == OAUTHBEARER:
        from ottla.client.wire.oauth import read_token_source  # noqa: PLC0415 - few have tokens

        source = read_token_source(texts, jaas or {})
        return Credentials(mechanism, source.client_id, "", source)
    if jaas is not None:
        username, password = jaas.get("username", ""), jaas.get("password", "")
    else:
        username, password = texts.get(_NAME, ""), texts.get(_PASSWORD, "")
    if not username:
        why = f"{protocol} needs {_NAME} and {_PASSWORD}, or {_JAAS} with both"
        raise InvalidConfig(_NAME, None, why)
    return Credentials(mechanism, username, password)


def _read_jaas(text: str) -> dict[str, str]:
    """Return the options of Java's line; the line itself never stands in an error."""
    line = _JAAS_LINE.fullmatch(text)
    if line is None:
        example = '...PlainLoginModule required username="NAME" password="PASSWORD";'
        raise InvalidConfig(_JAAS, None, f"{_JAAS}: expected {example}")
    module = line["module"].rpartition(".")[2]
    if module not in _JAAS_MODULES:
        raise InvalidConfig(_JAAS, module, f"expected one of {', '.join(_JAAS_MODULES)}")
    return {pair["name"]: _jaas_value(pair) for pair in _JAAS_PAIR.finditer(line["rest"])}


def _jaas_value(pair: re.Match[str]) -> str:
    if pair["quoted"] is None:
        return pair["bare"]
    return re.sub(r"\\(.)", r"\1", pair["quoted"])
