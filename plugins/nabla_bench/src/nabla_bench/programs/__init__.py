"""The planted bugs: each function trains or checks something, with one fault or without it.

The functions are loaded from copies of these files, so that what is found in them has a place of
its own, as in a program of a person (see ``loading.py``).
"""

from __future__ import annotations

__all__: list[str] = []
