"""The folder of summaries: one small JSON file per run, at most five hundred."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from nabla_core.errors import InputError
from nabla_core.files import read_text, write_text

from .summary import RunSummary

__all__ = ["HistoryStore", "project_of", "run_id"]

_FOLDER = Path(".nabla") / "history"
_MAX_RUNS = 500
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class HistoryStore:
    """Summaries of the runs of one working folder.

    Args:
        folder: where the files are; made when the first run is kept.
    """

    folder: Path

    @classmethod
    def here(cls) -> HistoryStore:
        """Return the store of the current folder: ``.nabla/history``."""
        return cls(Path.cwd() / _FOLDER)

    def load(self, project: str | None = None) -> list[RunSummary]:
        """Return the summaries, the oldest first; a file that is none is passed over.

        Args:
            project: only runs of this project.
        """
        found = []
        for path in self._files():
            try:
                stored = json.loads(read_text(path, _MAX_BYTES))
                summary = RunSummary.from_dict(stored if isinstance(stored, dict) else {})
            except (InputError, ValueError, OverflowError, RecursionError):
                continue  # foreign or damaged; nothing else depends on it
            if project is None or summary.project == project:
                found.append(summary)
        return sorted(found, key=lambda summary: (summary.logged_utc, summary.source, summary.id))

    def keep(self, summary: RunSummary) -> None:
        """Store a summary; the oldest files are removed above five hundred.

        Raises:
            InputError: the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be made: {error.strerror}") from error
        write_text(
            self.folder / f"{summary.id}.json", json.dumps(summary.to_dict(), indent=1) + "\n"
        )
        self._prune()

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in sorted(self.folder.glob("*.json")) if path.is_file()]

    def _prune(self) -> None:
        files = self._files()
        if len(files) > _MAX_RUNS:
            oldest = sorted(files, key=lambda path: path.stat().st_mtime)
            for path in oldest[: len(files) - _MAX_RUNS]:
                path.unlink(missing_ok=True)


def project_of(start: Path) -> str:
    """Return the name of the project: the folder with ``.git`` at or above ``start``, or itself."""
    folder = start.resolve()
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists():
            return parent.name
    return folder.name


def run_id(project: str, source: Path, number: int) -> str:
    """Return the name under which a run is kept; the same log and place give the same name."""
    text = "\0".join((project, str(source.resolve()), str(number)))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
