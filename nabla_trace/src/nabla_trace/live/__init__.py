"""Looks at a training loop from inside: hooks on one model and one optimizer."""
