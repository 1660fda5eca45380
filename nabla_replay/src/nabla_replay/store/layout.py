"""Names inside the folder of a run.

::

    run.json                          what the run is; written once, at once
    run.lock                          held while a writer sets up
    steps.r<rank>.jsonl               append-only log; its writer holds a lock on it
    ckpt/r<rank>-<step>.safetensors   a checkpoint, once its record is in the log
    .r<rank>-*.tmp                    unfinished; removed when the rank's log is opened again
"""

from __future__ import annotations

import re

__all__ = [
    "CHECKPOINT_FOLDER",
    "HEADER_NAME",
    "LOCK_NAME",
    "MAX_CHECKPOINT_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_LOG_BYTES",
    "checkpoint_name",
    "is_checkpoint_name",
    "is_checkpoint_of",
    "is_run_id",
    "is_temporary_name",
    "is_temporary_of",
    "log_name",
    "rank_of_log",
    "temporary_name",
]

HEADER_NAME = "run.json"
LOCK_NAME = "run.lock"
CHECKPOINT_FOLDER = "ckpt"

MAX_HEADER_BYTES = 64 * 1024 * 1024
MAX_LOG_BYTES = 1 << 40
MAX_CHECKPOINT_BYTES = 1 << 44

_LOG = re.compile(r"steps\.r(0|[1-9][0-9]{0,5})\.jsonl")
_CHECKPOINT = re.compile(r"r(0|[1-9][0-9]{0,5})-[0-9]{10,}(\.[0-9]{1,9})?\.safetensors")
_TEMPORARY = re.compile(r"\.r[0-9]{1,6}-[0-9a-f]{1,32}\.tmp")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def log_name(rank: int) -> str:
    """Return the name of a rank's log."""
    return f"steps.r{rank}.jsonl"


def rank_of_log(name: str) -> int | None:
    """Return the rank of a log, or None if ``name`` is none."""
    match = _LOG.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_name(rank: int, step: int, segment: int) -> str:
    """Return the name of a checkpoint; a resumed segment never takes the name of an earlier one."""
    later = f".{segment}" if segment else ""
    return f"r{rank}-{step:010d}{later}.safetensors"


def is_checkpoint_of(rank: int, name: str) -> bool:
    """Return whether ``name`` is the checkpoint of a rank."""
    return name.startswith(f"r{rank}-") and name.endswith(".safetensors")


def temporary_name(rank: int, token: str) -> str:
    """Return the name of a file that is being written."""
    return f".r{rank}-{token}.tmp"


def is_checkpoint_name(name: str) -> bool:
    """Return whether ``name`` can be a checkpoint."""
    return _CHECKPOINT.fullmatch(name) is not None


def is_temporary_name(name: str) -> bool:
    """Return whether ``name`` is an unfinished file of any rank."""
    return _TEMPORARY.fullmatch(name) is not None


def is_temporary_of(rank: int, name: str) -> bool:
    """Return whether ``name`` is an unfinished file of a rank."""
    return name.startswith(f".r{rank}-") and name.endswith(".tmp")


def is_run_id(text: str) -> bool:
    """Return whether ``text`` can name a run: letters, digits, ``.``, ``_``, ``-``."""
    return _RUN_ID.fullmatch(text) is not None
