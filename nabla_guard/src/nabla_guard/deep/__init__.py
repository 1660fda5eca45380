"""Every op of a step, seen by a dispatch mode: the range of each result."""
