"""Compares the replicas of one model over the ranks of a training."""
