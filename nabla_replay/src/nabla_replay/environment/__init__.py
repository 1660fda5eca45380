"""What of a computer and its settings decides the bits of a training step."""
