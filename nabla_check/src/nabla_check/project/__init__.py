"""Operators by name: targets of the command line and the manifest of a project."""
