"""Facts that only this package needs; each is gathered while a detector asks for it."""
