"""Detectors: pure decisions over the facts of a loop, one kind of fault per file."""
