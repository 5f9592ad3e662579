"""Kafka's wire protocol: message tables, the compiler that makes codecs of them, headers.

Bytes in, typed messages out, and back. Knows nothing of sockets, logs or handlers.
"""
