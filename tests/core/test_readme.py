"""The first example of the README prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "nabla_core" / "README.md"


def test_the_example_prints_what_it_says():
    text = README.read_text()
    code = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.S)
    done = subprocess.run(
        [sys.executable, "-c", code[1]], capture_output=True, text=True, check=True
    )
    assert done.stdout == code[2]
