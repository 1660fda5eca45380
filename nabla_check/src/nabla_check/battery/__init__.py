"""The tests of an operator, one per file; each yields what is wrong."""
