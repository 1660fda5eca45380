"""The name of a curve that only its file tells."""

from __future__ import annotations

import re
from pathlib import Path

from .naming import Quantity, direction_of, name_of

__all__ = ["tag_of_file"]

_TAG_IN_NAME = re.compile(r"tag[-_](.+)")


def tag_of_file(path: Path) -> str | None:
    """Return the tag that a file is called after, if it names a known quantity.

    ``run-a-tag-Loss_train.csv`` is ``Loss_train``; ``train_loss.csv`` is ``train_loss``.
    """
    found = _TAG_IN_NAME.search(path.stem)
    if found:
        return found[1]
    tag = path.name.split(".")[0]
    is_known = name_of(tag).quantity is not Quantity.METRIC or direction_of(tag) != "unknown"
    return tag if is_known else None
