"""One watched training loop: turns what the taps tell into facts and step records."""
