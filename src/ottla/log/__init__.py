"""The log engine: segments in Kafka's own file formats, and the rules that keep them whole."""
