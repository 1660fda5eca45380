"""Nested training state as tensors and JSON, without pickle."""
