"""Where a report comes from: versions, device, commit. Nothing is imported for it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .redaction import redact

if TYPE_CHECKING:
    from .host import PluginHost

__all__ = ["device_name", "git_commit", "run_versions"]


def run_versions(host: PluginHost) -> dict[str, str]:
    """Return the versions of Python, torch (if loaded), the core and every plugin in use."""
    versions = {"python": platform.python_version(), "nabla-core": __version__}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["torch"] = str(torch.__version__)
    for plugin in host.plugins:
        if plugin.found.distribution:
            versions[plugin.found.distribution] = plugin.found.version
    return versions


def device_name() -> str:
    """Return the accelerator that torch uses in this process, else ``"cpu"``. Initialises none."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return "cpu"


def git_commit(start: Path | None = None) -> str | None:
    """Return the commit of the working folder by reading ``.git``; no process is started."""
    try:
        folder = (start or Path.cwd()).resolve()
        for parent in (folder, *folder.parents):
            head = parent / ".git" / "HEAD"
            if head.is_file():
                return _resolve(head.read_text(encoding="utf-8").strip(), parent / ".git")
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _resolve(head: str, git: Path) -> str | None:
    if not head.startswith("ref: "):
        return head or None
    name = head.removeprefix("ref: ")
    loose = git / name
    if ".." not in name and loose.is_file():
        return loose.read_text(encoding="utf-8").strip()
    packed = git / "packed-refs"
    if packed.is_file():
        for line in packed.read_text(encoding="utf-8").splitlines():
            if line.endswith(f" {name}"):
                return redact(line.split(" ", 1)[0])
    return None
