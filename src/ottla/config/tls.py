"""The options of TLS, and what they mean together for a listener.

Owns ``ssl.*``, for all listeners and for one (``listener.name.<listener>.ssl.*``), the names of
cipher suites, and which combinations cannot be served. Reads no file.
Source: Kafka's broker configuration reference; KIP-651 (PEM); KIP-684 (certificates beside SASL).
"""

from typing import TYPE_CHECKING, TypeVar

from ottla.config.bounds import NOT_NEGATIVE
from ottla.config.config import Config
from ottla.config.option import LIST, LONG, STRING, InvalidConfig, Option, ValueType, one_of

if TYPE_CHECKING:  # A broker without TLS loads neither.
    from ottla.config.mapping_rules import MappingRules
    from ottla.env.server_tls import ServerTlsFiles

T = TypeVar("T")

PEM = "PEM"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
PASSWORD = ValueType("PASSWORD", 9, str)


def _checked_rules(text: str) -> str:
    from ottla.config.mapping_rules import read_mapping_rules  # noqa: PLC0415 - see above

    read_mapping_rules(text)
    return text or "DEFAULT"


MAPPING_RULES = ValueType("STRING", 2, _checked_rules)


def _text(key: str, doc: str, *, secret: bool = False) -> Option[str | None]:
    return Option(key, PASSWORD if secret else STRING, None, doc, sensitive=secret)


# fmt: off - one option is one paragraph
KEYSTORE_TYPE = Option(
    "ssl.keystore.type",
    STRING,
    PEM,
    "The kind of ssl.keystore.location: PEM. JKS and PKCS12 are refused, with the command that"
    " makes PEM of them.",
    deviates="Kafka's is JKS, which is not served.",
)
KEYSTORE_LOCATION = _text(
    "ssl.keystore.location",
    "The PEM file with the broker's private key, its certificate and what signed that.",
)
KEYSTORE_PASSWORD = _text(
    "ssl.keystore.password", "Refused with PEM: ssl.key.password opens the key.", secret=True
)
KEYSTORE_CHAIN = _text(
    "ssl.keystore.certificate.chain",
    "The broker's certificate and what signed it, as PEM, in the place of a file.",
)
KEYSTORE_KEY = _text(
    "ssl.keystore.key", "The broker's private key as PEM, in the place of a file.", secret=True
)
KEY_PASSWORD = _text("ssl.key.password", "The password that opens the private key.", secret=True)
TRUSTSTORE_TYPE = Option(
    "ssl.truststore.type",
    STRING,
    PEM,
    "The kind of ssl.truststore.location: PEM, as ssl.keystore.type.",
    deviates="Kafka's is JKS, which is not served.",
)
TRUSTSTORE_LOCATION = _text(
    "ssl.truststore.location",
    "The PEM file with the certificates that clients' certificates must be signed by.",
)
TRUSTSTORE_PASSWORD = _text("ssl.truststore.password", "Refused with PEM.", secret=True)
TRUSTSTORE_CERTIFICATES = _text(
    "ssl.truststore.certificates",
    "The certificates that clients' certificates must be signed by, as PEM, in the place of a"
    " file.",
)
CLIENT_AUTH = Option(
    "ssl.client.auth",
    STRING,
    "none",
    "Whether clients show a certificate: required, requested (they may) or none. On a SASL_SSL"
    " listener only its own option counts: listener.name.<listener>.ssl.client.auth.",
    validator=one_of("required", "requested", "none"),
)
ENABLED_PROTOCOLS: Option[tuple[str, ...]] = Option(
    "ssl.enabled.protocols",
    LIST,
    TLS_VERSIONS,
    "The versions of TLS that clients may use: TLSv1.2, TLSv1.3.",
)
PROTOCOL = Option(
    "ssl.protocol",
    STRING,
    "TLSv1.3",
    "TLSv1.3, TLSv1.2 or TLS. ssl.enabled.protocols decides which versions are served.",
    validator=one_of("TLSv1.3", "TLSv1.2", "TLS"),
)
CIPHER_SUITES: Option[tuple[str, ...]] = Option(
    "ssl.cipher.suites",
    LIST,
    (),
    "The cipher suites that are served, by the names that Java and the standards use; none: the TLS"
    " library's. Of TLS 1.3 all suites or none can be named.",
)
PRINCIPAL_MAPPING_RULES = Option(
    "ssl.principal.mapping.rules",
    MAPPING_RULES,
    "DEFAULT",
    "How the distinguished name in a client's certificate becomes a user's name: DEFAULT (the whole"
    " name) and RULE:pattern/replacement/[LU], the first that fits.",
)
ENDPOINT_IDENTIFICATION = Option(
    "ssl.endpoint.identification.algorithm",
    STRING,
    "https",
    "Of use for clients only: a broker does not compare its clients' host names.",
)
RELOAD_INTERVAL_MS = Option(
    "ottla.ssl.reload.interval.ms",
    LONG,
    10_000,
    "How often the files of keys and certificates are looked at. When they have changed and can be"
    " used, new connections get the new ones; when not, the old ones stay. 0: never.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
# fmt: on
TLS = (
    KEYSTORE_TYPE,
    KEYSTORE_LOCATION,
    KEYSTORE_PASSWORD,
    KEYSTORE_CHAIN,
    KEYSTORE_KEY,
    KEY_PASSWORD,
    TRUSTSTORE_TYPE,
    TRUSTSTORE_LOCATION,
    TRUSTSTORE_PASSWORD,
    TRUSTSTORE_CERTIFICATES,
    CLIENT_AUTH,
    ENABLED_PROTOCOLS,
    PROTOCOL,
    CIPHER_SUITES,
    PRINCIPAL_MAPPING_RULES,
    ENDPOINT_IDENTIFICATION,
    RELOAD_INTERVAL_MS,
)
_BY_KEY: dict[str, Option[object]] = {
    option.key: option for option in TLS if option is not RELOAD_INTERVAL_MS
}
"""Those that a listener can have for itself."""

_SUITES_13 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_SUITES_12 = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
}
"""Java's names of the suites of TLS 1.2 that are served, and OpenSSL's."""


def tls_option_of(listener: str, key: str) -> Option[object] | None:
    """Return the option ``key`` (``ssl.*``) of one listener; None when there is no such option.

    Its default is None: then the option without the listener's name decides.
    """
    option = _BY_KEY.get(key)
    if option is None:
        return None
    return Option(
        f"listener.name.{listener.lower()}.{key}",
        option.type,
        None,
        option.doc,
        option.scope,
        option.validator,
        sensitive=option.sensitive,
    )


def mapping_rules_of(config: Config, listener: str) -> "MappingRules":
    """Return the rules of one listener."""
    from ottla.config.mapping_rules import read_mapping_rules  # noqa: PLC0415 - see above

    return read_mapping_rules(_value(config, listener, PRINCIPAL_MAPPING_RULES))


def tls_files_of(config: Config, listener: str, *, with_sasl: bool) -> "ServerTlsFiles":
    """Return what the options mean for one listener. Raises InvalidConfig for what is not served.

    ``with_sasl``: who a client is comes from SASL, so ``ssl.client.auth`` counts only if it is the
    listener's own.
    """
    from ottla.env.server_tls import ServerTlsFiles  # noqa: PLC0415 - see above

    for option in (KEYSTORE_TYPE, TRUSTSTORE_TYPE):
        _check_is_pem(config, listener, option)
    for password in (KEYSTORE_PASSWORD, TRUSTSTORE_PASSWORD):
        if _value(config, listener, password) is not None:
            why = f"{password.key} has no meaning with PEM; ssl.key.password opens the key"
            raise InvalidConfig(password.key, None, f"Listener {listener}: {why}")
    location, chain, key = (
        _value(config, listener, each) for each in (KEYSTORE_LOCATION, KEYSTORE_CHAIN, KEYSTORE_KEY)
    )
    trust_file = _value(config, listener, TRUSTSTORE_LOCATION)
    trust_text = _value(config, listener, TRUSTSTORE_CERTIFICATES)
    _check_has_one(listener, location, chain, key)
    if trust_file is not None and trust_text is not None:
        why = f"{TRUSTSTORE_LOCATION.key} and {TRUSTSTORE_CERTIFICATES.key} exclude each other"
        raise InvalidConfig(TRUSTSTORE_LOCATION.key, None, f"Listener {listener}: {why}")
    own_client_auth = tls_option_of(listener, CLIENT_AUTH.key)
    assert own_client_auth is not None, "it is in the table"
    client_auth = str(config[own_client_auth] or ("none" if with_sasl else config[CLIENT_AUTH]))
    if client_auth != "none" and trust_file is None and trust_text is None:
        why = (
            f"{CLIENT_AUTH.key}={client_auth} needs {TRUSTSTORE_LOCATION.key} or "
            f"{TRUSTSTORE_CERTIFICATES.key}: what signs clients' certificates"
        )
        raise InvalidConfig(CLIENT_AUTH.key, None, f"Listener {listener}: {why}")
    versions, ciphers = _versions_and_ciphers(config, listener)
    return ServerTlsFiles(
        keystore_file=location,
        chain_text=chain,
        key_text=key,
        key_password=_value(config, listener, KEY_PASSWORD),
        trust_file=trust_file,
        trust_text=trust_text,
        client_auth=client_auth,
        versions=versions,
        ciphers=ciphers,
    )


def _value(config: Config, listener: str, option: Option[T]) -> T:
    own = tls_option_of(listener, option.key)
    assert own is not None, "it is in the table"
    return config[option] if config[own] is None else config[own]  # type: ignore[return-value]


def _check_is_pem(config: Config, listener: str, option: Option[str]) -> None:
    kind = _value(config, listener, option).upper()
    if kind != PEM:
        from ottla.env.server_tls import how_to_convert  # noqa: PLC0415 - see above

        how = how_to_convert(kind)
        why = f"{option.key}={kind} is not served, only PEM is{f'; {how}' if how else ''}"
        raise InvalidConfig(option.key, None, f"Listener {listener}: {why}")


def _check_has_one(listener: str, location: str | None, chain: str | None, key: str | None) -> None:
    why = ""
    if location is None and chain is None:
        why = f"TLS needs a certificate: {KEYSTORE_LOCATION.key} or {KEYSTORE_CHAIN.key}"
    elif location is not None and (chain is not None or key is not None):
        why = f"{KEYSTORE_LOCATION.key} excludes {KEYSTORE_CHAIN.key} and {KEYSTORE_KEY.key}"
    elif location is None and key is None:
        why = f"{KEYSTORE_CHAIN.key} needs {KEYSTORE_KEY.key}"
    if why:
        raise InvalidConfig(KEYSTORE_LOCATION.key, None, f"Listener {listener}: {why}")


def _versions_and_ciphers(config: Config, listener: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the versions that the suites leave, and OpenSSL's names of those of TLS 1.2."""
    versions = _value(config, listener, ENABLED_PROTOCOLS)
    for version in versions:
        if version not in TLS_VERSIONS:
            why = f"{ENABLED_PROTOCOLS.key}: {version} is not served, only TLSv1.2 and TLSv1.3 are"
            raise InvalidConfig(ENABLED_PROTOCOLS.key, None, f"Listener {listener}: {why}")
    suites = _value(config, listener, CIPHER_SUITES)
    if not suites:
        return versions, ()
    of_13 = [suite for suite in suites if suite in _SUITES_13]
    of_12 = [suite for suite in suites if suite in _SUITES_12]
    unknown = [suite for suite in suites if suite not in _SUITES_13 and suite not in _SUITES_12]
    why = ""
    if unknown:
        why = f"{unknown[0]} is not served; those are: {', '.join((*_SUITES_13, *_SUITES_12))}"
    elif of_13 and len(of_13) < len(_SUITES_13):
        why = f"of TLS 1.3 all suites or none can be named: {', '.join(_SUITES_13)}"
    left = tuple(version for version in versions if (of_13 if version == "TLSv1.3" else of_12))
    if not why and not left:
        why = f"none of them is of a version in {ENABLED_PROTOCOLS.key}"
    if why:
        raise InvalidConfig(
            CIPHER_SUITES.key, None, f"Listener {listener}: {CIPHER_SUITES.key}: {why}"
        )
    return left, tuple(_SUITES_12[suite] for suite in of_12)
