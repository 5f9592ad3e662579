"""What is loaded for logins: the libraries of tokens only where tokens are taken."""

import subprocess
import sys


def test_a_node_that_takes_no_tokens_loads_nothing_of_them():
    code = """
import sys
import ottla.broker, ottla.handlers.authentication
import ottla.security.scram, ottla.client.blocking.cluster
from ottla.client.wire.settings import read_settings
read_settings({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"})
names = ("jwt", "cryptography", "http.client", "ottla.security.tokens", "ottla.security.bearer",
    "ottla.node.issuer_keys", "ottla.env.web", "ottla.client.tokens", "ottla.client.wire.oauth")
print([name for name in names if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
