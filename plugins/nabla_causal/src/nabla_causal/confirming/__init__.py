"""Runs the tests that would confirm a hypothesis, where that is cheap."""
