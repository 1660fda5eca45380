"""Families of facts, each gathered only while a detector wants it."""
