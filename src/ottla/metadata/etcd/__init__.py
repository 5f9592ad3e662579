"""The metadata store of several hosts: etcd v3, by grpcio, behind the same port as the others."""
