"""What counts as right: numerical derivatives with an error bar, and floors of rounding."""
