"""Evidence that outlives the process: reproduction scripts and artifact folders."""
