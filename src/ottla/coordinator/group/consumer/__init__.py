"""Groups of the consumer protocol (KIP-848): decisions, targets and records. Pure."""
