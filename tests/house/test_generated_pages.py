"""The pages under ``docs/rules`` say what the rules say."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "rules"


def test_pages_of_the_rules_are_up_to_date(tmp_path):
    command = [sys.executable, "-m", "nabla", "--no-plugins", "--no-config", "rules"]
    subprocess.run([*command, "--write-docs", str(tmp_path)], check=True, capture_output=True)

    written = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    kept = {path.name: path.read_text() for path in DOCS.glob("*.md")}

    stale = [name for name in written if kept.get(name) != written[name]]
    assert sorted(stale) == [], "run make docs"
    assert sorted(set(kept) - set(written)) == [], "run make docs"
