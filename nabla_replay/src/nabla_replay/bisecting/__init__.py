"""Finds the first bad step of a recorded run, or says why it cannot be found."""
