"""Ottla: a Kafka-compatible streaming log. Importing it is cheap: it imports no other module."""

__version__ = "0.1.0"
