"""A captured run as the facts of its steps, for whoever judges runs by their records."""
