"""Taking secrets, home folders, user and host names out of text before it is stored or shown."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["redact", "redact_tree"]

_MASK = "[redacted]"

_SECRETS = (
    re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"),
    re.compile(
        r"(?i)((?:api[_-]?key|access[_-]?key|secret(?:[_-]?key)?|(?<![a-z])token|passw(?:or)?d"
        r"|credentials?)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]{6,}"
    ),
    re.compile(r"(?i)(--(?:[a-z0-9-]*(?:key|secret|token|password))\s+)\S+"),
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\b(?:gh[opsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|hf_[A-Za-z0-9]{20,})"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.S),
)


def redact(text: str) -> str:
    """Return ``text`` without secrets, home folders, the user's name and the host's name."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: (match.group(1) if match.re.groups else "") + _MASK, text)
    for pattern, replacement in _private_patterns():
        text = pattern.sub(replacement, text)
    return text


def redact_tree(value: object) -> object:
    """Return a JSON-like value with every string, keys included, redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): redact_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_tree(item) for item in value]
    return value


@lru_cache(maxsize=1)
def _private_patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    home = os.path.expanduser("~").rstrip("/\\")
    found = [(re.compile(r"(?:/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\\s:\"']+"), "~")]
    if len(home) > 1 and home != "~":
        found.insert(0, (re.compile(re.escape(home) + r"(?=[/\\\s:\"']|$)"), "~"))
    for name in (_user(), socket.gethostname()):
        if len(name) >= 3 and name not in {"root", "localhost", "user"}:
            found.append((re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), _MASK))
    return tuple(found)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""  # a container without a user entry
