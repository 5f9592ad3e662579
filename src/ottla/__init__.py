"""Ottla: a Kafka-compatible streaming log. Importing this package costs nothing: rooms are imported by name."""

__version__ = "0.1.0"
