"""Groups of the consumer protocol (KIP-848): pure decisions, targets, records, and their shell."""
