"""What one log consists of: its segments in order, its leader epochs, and what holds of them."""
