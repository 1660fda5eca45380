"""What leaf modules give and get back: ranges of their outputs and of the gradients of these."""
