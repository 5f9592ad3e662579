"""Transactions: which producer may write under a transactional id, where, and how that ends."""
