"""Executes recorded steps again with one thing changed, and says whether the symptom stays."""
