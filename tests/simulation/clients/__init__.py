"""The inhabitants that ask: each speaks the real protocol and writes down what it was promised."""
