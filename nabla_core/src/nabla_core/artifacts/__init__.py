"""Folders of evidence: written atomically, read as if a stranger had made them."""
