"""Transactions: who may write under a transactional id, to what, and how that ends."""
