"""From numbers to words: where a gradient is wrong, and the pattern of the error."""
