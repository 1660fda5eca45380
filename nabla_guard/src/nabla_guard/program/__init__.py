"""Runs a program of a person unmodified, as the interpreter itself would."""
