"""Apicurio Registry, another implementation of Confluent's schema registry API: a judge.

    python tools/registry_peer.py fetch     bring it from Maven Central into the cache (60 MB)
    python tools/registry_peer.py start     one registry in memory on a free port, until ^C

Needs Java 17 and, once, Maven. The cache is ottla/apicurio-VERSION in the user's cache directory.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Self

VERSION = "3.0.9"
"""The newest that Java 17 runs."""
START_SECONDS = 60.0


class RegistryUnavailable(RuntimeError):
    """Java or the registry is missing, or does not start; the message says which."""


def home() -> Path:
    """Return the directory that has, or will have, the registry."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ottla" / f"apicurio-{VERSION}"


def jar() -> Path:
    """Return the registry's jar. Raises RegistryUnavailable when it was not fetched."""
    found = home() / f"apicurio-registry-app-{VERSION}-runner.jar"
    if shutil.which("java") is None:
        raise RegistryUnavailable("java is not on the path")
    if not found.exists():
        raise RegistryUnavailable("not fetched: python tools/registry_peer.py fetch")
    return found


def fetch() -> Path:
    """Bring the registry from Maven Central; return its jar. Blocks."""
    with contextlib.suppress(RegistryUnavailable):
        return jar()
    place = home()
    place.mkdir(parents=True, exist_ok=True)
    artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}"]
    subprocess.run([*command, f"-DoutputDirectory={place}"], check=True)
    packed = place / f"apicurio-registry-app-{VERSION}-all.tar.gz"
    with tarfile.open(packed) as archive:
        archive.extractall(place, filter="data")
    packed.unlink()
    return jar()


class RegistryPeer:
    """One registry in memory. A context manager."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.url = f"{self.address}/apis/ccompat/v7"
        """Where it speaks Confluent's API."""
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self._port),
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": "jdbc:h2:mem:registry",
            "apicurio.rest.deletion.artifact.enabled": "true",
        }
        java = ["java", "-Xmx384m", *(f"-D{name}={value}" for name, value in options.items())]
        self._process = subprocess.Popen(
            [*java, "-jar", str(jar())], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends and self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects"):
                return self
            time.sleep(0.2)
        self.__exit__()
        raise RegistryUnavailable("the registry did not start")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Fetch or start."""
    if sys.argv[1:] == ["fetch"]:
        print(fetch())
    elif sys.argv[1:] == ["start"]:
        with RegistryPeer() as peer, contextlib.suppress(KeyboardInterrupt):
            print(peer.url, flush=True)
            while True:
                time.sleep(3600)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
