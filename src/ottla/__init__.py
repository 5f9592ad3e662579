"""Ottla: a Kafka-compatible streaming log. Importing it costs nothing: rooms come by name."""

__version__ = "0.1.0"
