"""Float64 shadow of one training step: which module, and which op in it, computes wrong numbers."""
