"""Executes recorded steps again and compares them, bit by bit, with what was recorded."""
