"""Random requests to Ottla and to a live Apache Kafka, in step: ``beside_kafka.py``."""
