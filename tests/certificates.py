"""Certificates for tests, made by the openssl command: a CA's, a broker's, some clients'.

ca.pem, other-ca.pem                       what to trust; the other one has signed nothing else
server.pem, client.pem, expired.pem        key and certificate in one file
server.key, server.crt, ...                the same, apart
locked.key                                 the server's key, encrypted with PASSWORD
"""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PASSWORD = "open sesame"
SUBJECT = "/C=AT/O=Ottla, Test/CN={}"
NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


@functools.cache
def certificates():
    """Return the directory that has them; made once per process."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates")
    kept = tempfile.TemporaryDirectory(prefix="certificates")
    certificates.kept = kept  # until the process ends
    directory = Path(kept.name)
    for authority in ("ca", "other-ca"):
        files = ("-keyout", f"{authority}.key", "-out", f"{authority}.pem")
        openssl("req", *KEY, "-x509", "-subj", f"/CN={authority}", *files, cwd=directory)
    for name in ("server", "client", "second"):
        make(directory, name)
    make(directory, "stranger", authority="other-ca")
    make(directory, "expired", "-days", "-1")
    openssl(
        *("pkcs8", "-topk8", "-in", "server.key", "-out", "locked.key"),
        *("-passout", f"pass:{PASSWORD}", "-v2", "aes-256-cbc"),
        cwd=directory,
    )
    return directory


def make(directory, name, *how, authority="ca", subject=None, names=NAMES):
    """Make the certificate of ``name`` in ``directory``, signed by ``authority``."""
    (directory / "names").write_text(names)
    files = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl("req", *KEY, "-utf8", "-subj", subject or SUBJECT.format(name), *files, cwd=directory)
    signing = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
    openssl(
        *("x509", "-req", "-in", f"{name}.csr", *signing, "-extfile", "names"),
        *("-out", f"{name}.crt", *how),
        cwd=directory,
    )
    key, certificate = (directory / f"{name}.{end}" for end in ("key", "crt"))
    (directory / f"{name}.pem").write_text(key.read_text() + certificate.read_text())
