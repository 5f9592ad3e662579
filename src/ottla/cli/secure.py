"""``ottla serve --secure DIR``: TLS, a user and an authorizer, made ready by one option.

    ca.key, ca.pem    an authority of this directory's own; clients trust ca.pem
    server.pem        the broker's key and certificate
    password          of the user ``admin``, who may do everything
    *.properties ...  the settings of clients (client_files), written at each start

Owns what the option means for the configuration, and what is in the directory. What is there is
never overwritten, except the clients' settings: who has certificates puts them there first.
"""

import base64
import os
from typing import NamedTuple

from ottla.cli.client_files import JAVA, MECHANISM, PROTOCOL, Access, client_files
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note
from ottla.config import broker as options
from ottla.config import tls
from ottla.config.authorization import (
    AUTHORIZER_CLASS_NAME,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
    read_principals,
)
from ottla.config.config import Config
from ottla.config.files import listeners_of
from ottla.config.security import SASL_ENABLED_MECHANISMS, ServedListener
from ottla.env.certificates import (
    Examined,
    NoProgram,
    NotMade,
    Refused,
    covers,
    examine,
    make_authority,
    make_key,
    make_server,
    names_of_this_machine,
)
from ottla.env.clock import SystemClock
from ottla.env.private_directory import NotPrivate, PrivateDirectory
from ottla.env.rng import SystemRng
from ottla.env.server_tls import ServerTlsUnusable
from ottla.env.tls import TlsUnusable
from ottla.security.credentials import FirstUser

USER = "admin"
CA_KEY, CA, SERVER, PASSWORD = "ca.key", "ca.pem", "server.pem", "password"
PASSWORD_BYTES = 24
LISTENER = f"{PROTOCOL}://127.0.0.1:9092"
MECHANISMS = f"{MECHANISM},SCRAM-SHA-512"
SOON_DAYS = 30
"""When it is said that a certificate ends."""
_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - to know them


class Secured(NamedTuple):
    """What a start found or made."""

    directory: PrivateDirectory
    is_new: bool
    listener: str
    """The name of the listener that clients' settings are for."""
    told: tuple[str, int] | None
    """The host and port that clients are told; None: those that are bound."""
    user: FirstUser

    def write_client_files(self, bound: tuple[str, int]) -> None:
        """Write clients' settings for the address that is bound. Blocks. Raises Failure."""
        host, port = self.told or bound
        reached = "127.0.0.1" if host in _EVERY_ADDRESS else host
        bootstrap = f"[{reached}]:{port}" if ":" in reached else f"{reached}:{port}"
        access = Access(bootstrap, USER, self.user.password, self.directory.of(CA))
        try:
            for name, text in client_files(access).items():
                self.directory.replace(name, text)
        except OSError as error:
            why = error.strerror or str(error)
            raise Failure(f"--secure: cannot write to {self.directory.path}", why=why) from error

    def first_steps(self) -> tuple[str, ...]:
        """Return the lines that a start prints about it, two commands to type among them."""
        age = "new" if self.is_new else "as it was"
        shown = os.path.relpath(self.directory.path)
        if shown.startswith(os.pardir):
            shown = self.directory.path
        config = f"--command-config {os.path.join(shown, JAVA)}"
        return (
            f"  Secure   {shown} ({age})    clients' settings, user {USER}; see its README.md",
            f"  Try      echo hello | ottla produce hello {config}",
            f"           ottla consume hello --from earliest {config}",
        )

    def password_differs(self, data: str | None) -> Failure:
        """Return the failure of a data directory that knows the user by another password."""
        path = self.directory.of(PASSWORD)
        return Failure(
            f"--secure: the cluster knows the user {USER} by another password than {path}",
            why=f"{data} was secured with another directory" if data else "",
            fix=f"name that directory; or, without --secure: ottla serve --data {data}, then "
            f"ottla user set {USER} --password-file {path}",
        )


def with_options(texts: dict[str, str], path: str) -> dict[str, str]:
    """Return the broker's options with those that ``--secure`` adds. Raises Failure, InvalidConfig.

    ``path``: the directory, absolute. What is given stays as it is.
    """
    for option in (tls.KEYSTORE_LOCATION, tls.KEYSTORE_CHAIN, tls.KEYSTORE_KEY, tls.KEYSTORE_TYPE):
        if option.key in texts:
            why = f"--secure takes the certificate in {os.path.join(path, SERVER)}"
            fix = f"put key and certificate into that file, as PEM, and leave {option.key} out"
            what = f"--secure and {option.key} exclude each other"
            raise Failure(what, why=why, fix=fix, code=Exit.USAGE)
    added = {
        options.LISTENERS.key: LISTENER,
        SASL_ENABLED_MECHANISMS.key: MECHANISMS,
        AUTHORIZER_CLASS_NAME.key: STANDARD_AUTHORIZER,
        **texts,
        tls.KEYSTORE_LOCATION.key: os.path.join(path, SERVER),
    }
    if added[AUTHORIZER_CLASS_NAME.key].strip():
        try:
            above = str(read_principals(texts.get(SUPER_USERS.key, "")))
        except ValueError:
            return added  # Whoever reads the options refuses it.
        ours = f"User:{USER}"
        if ours not in above.split(";"):
            added[SUPER_USERS.key] = f"{above};{ours}" if above else ours
    return added


def prepare(config: Config, path: str) -> Secured:
    """Make what is missing in the directory ``path``, and try what is there. Raises Failure."""
    served = _chosen(config, path)
    told = next(
        (
            (each.host, each.port)
            for each in config[options.ADVERTISED_LISTENERS]
            if each.name == served.endpoint.name
        ),
        None,
    )
    listens_everywhere = served.endpoint.host in _EVERY_ADDRESS
    host = told[0] if told else "127.0.0.1" if listens_everywhere else served.endpoint.host
    directory = PrivateDirectory(path)
    try:
        directory.make()
        is_new = not any(directory.has(name) for name in (CA, SERVER, PASSWORD))
        _make_missing(directory, host)
        password = directory.read(PASSWORD).strip()
        _try(directory, host)
    except NoProgram as error:
        raise _no_program(directory) from error
    except NotPrivate as error:
        why, _, fix = str(error).partition("; ")
        raise Failure(f"--secure: {path} is not private", why=why, fix=fix) from error
    except NotMade as error:
        raise Failure("--secure: no certificate could be made", why=str(error)) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        named = getattr(error, "filename", None) or path
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        fix = "name a directory, or one that is not there yet" if is_file else ""
        raise Failure(f"--secure: cannot use {named}", why=why, fix=fix) from error
    if not password:
        raise _broken(directory, PASSWORD, "it is empty")
    user = FirstUser(USER, MECHANISM, password, is_needed=True)
    return Secured(directory, is_new, served.endpoint.name, told, user)


def _chosen(config: Config, path: str) -> ServedListener:
    """Return the first listener that clients' settings can be for."""
    ours = os.path.join(path, SERVER)
    for served in listeners_of(config):
        is_ours = served.tls is not None and served.tls.keystore_file == ours
        if served.protocol == PROTOCOL and is_ours and MECHANISM in served.mechanisms:
            return served
    raise Failure(
        f"--secure: no listener has {PROTOCOL} with {MECHANISM} and the certificate {ours}",
        why="the configuration names other listeners, mechanisms or certificates",
        fix=f"leave `listeners` out, or add {LISTENER}",
        code=Exit.USAGE,
    )


def _make_missing(directory: PrivateDirectory, host: str) -> None:
    """Make what is missing. Raises OSError, NoProgram, NotMade, ValueError, Failure."""
    rng = SystemRng()
    if not directory.has(PASSWORD):
        made = base64.urlsafe_b64encode(rng.random_bytes(PASSWORD_BYTES)).decode()
        directory.keep(PASSWORD, f"{made}\n")
    if directory.has(CA) and directory.has(SERVER):
        return
    if directory.has(SERVER):
        raise _broken(directory, CA, f"it is missing, and it signed {SERVER}")
    if not directory.has(CA_KEY):
        if directory.has(CA):
            raise _broken(directory, SERVER, f"it is missing, and there is no {CA_KEY} to sign it")
        directory.keep(CA_KEY, make_key())
    authority_key = directory.read(CA_KEY)
    if not directory.has(CA):
        name = f"ottla serve --secure {rng.random_bytes(4).hex()}"  # Tells two authorities apart.
        directory.keep(CA, make_authority(authority_key, name))
    key = make_key()
    certificate = make_server(
        key,
        names=tuple(dict.fromkeys((*names_of_this_machine(), host.lower()))),
        authority=directory.read(CA, is_secret=False),
        authority_key=authority_key,
        serial=int.from_bytes(rng.random_bytes(16), "big") + 1,
        name="ottla broker",
    )
    directory.keep(SERVER, key + certificate)


def _try(directory: PrivateDirectory, host: str) -> None:
    """Judge the certificate as clients will. Raises Failure, NotPrivate, OSError, ValueError."""
    directory.read(SERVER)  # It has a key, and must be private.
    try:
        examined = examine(directory.of(SERVER), directory.of(CA))
    except (Refused, ServerTlsUnusable, TlsUnusable) as error:
        raise _broken(directory, SERVER, str(error)) from error
    if not covers(examined.names, host):
        why = f"it is for {', '.join(examined.names) or 'no host'}"
        raise _broken(directory, SERVER, f"clients are told {host}, and {why}")
    _tell_of_the_end(directory, examined)


def _tell_of_the_end(directory: PrivateDirectory, examined: Examined) -> None:
    days = (examined.ends_at - SystemClock().wall_ms() // 1000) // 86_400
    if days < SOON_DAYS:
        where = directory.of(SERVER)
        note(f"note: the certificate {where} ends on {examined.ends}; {_way_out(directory)}")


def _broken(directory: PrivateDirectory, name: str, why: str) -> Failure:
    return Failure(
        f"--secure: cannot use {directory.of(name)}",
        why=why,
        fix=_way_out(directory),
    )


def _way_out(directory: PrivateDirectory) -> str:
    """Return how a certificate that is of no use is replaced."""
    if directory.has(CA_KEY) and directory.has(CA):
        return f"rm {directory.of(SERVER)}   and start again: a new one is made, {CA} stays"
    return f"put a matching {SERVER} and {CA} there, or take a new directory: clients need its {CA}"


def _no_program(directory: PrivateDirectory) -> Failure:
    return Failure(
        "--secure: there is no openssl to make certificates",
        why="the program is not on the PATH",
        fix="apt-get install openssl (apk add, dnf install, brew install), or put certificates "
        f"into {directory.of(SERVER)} (key and certificate) and {directory.of(CA)}",
    )
