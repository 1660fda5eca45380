"""Per-sample gradients of a whole batch from one backward pass, without keeping them."""
