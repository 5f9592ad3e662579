"""The log engine: segments in Kafka's own file formats, and the crash rules that keep them whole."""
