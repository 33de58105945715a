"""The laboratory: networks, methods, benchmarks and the protocol that runs one on the other."""
