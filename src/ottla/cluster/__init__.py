"""Decisions for the whole cluster: topics, partition leaders, configs, membership, producer ids."""
