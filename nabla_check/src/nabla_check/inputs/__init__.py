"""What is differentiated: callables, operands, recipes of tensors, controlled evaluation."""
