"""Fingerprints of tensors: whole values, bit by bit, at the cost of one pass over their bytes."""
