"""The folder of a captured run: one checksummed log per rank, and checkpoints."""
