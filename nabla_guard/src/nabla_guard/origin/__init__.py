"""The origin of the first bad number: what a step did is kept, and executed again op by op."""
