"""The cluster's decisions: which topics exist, who leads what, which producer ids are given out."""
