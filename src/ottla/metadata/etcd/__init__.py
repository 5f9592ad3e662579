"""The metadata store of several hosts: etcd v3, by grpcio, behind the same port as the others."""

import os

# Before grpcio is imported: it writes every failed handshake to the terminal, in words of its own.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
