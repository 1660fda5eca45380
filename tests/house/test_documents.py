"""What the documents say can be done: links lead somewhere, code is code, commands exist."""

import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from nabla_core.cli.shell import shell
from nabla_core.cli.state import ShellState

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("nabla_*/README.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.S | re.M)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

per_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def commands_in(document):
    """Yield the words of every command line that is shown with a prompt, or alone in a block."""
    for kind, block in BLOCK.findall(document.read_text(encoding="utf-8")):
        if kind:
            continue
        for line in block.splitlines():
            words = line.strip().removeprefix("$ ")
            if words.startswith("nabla ") and (line.strip() != words or block.count("\n") == 1):
                yield shlex.split(words.partition(" >> ")[0], comments=True)


def parse(words):
    """Parse the words behind ``nabla`` as it does, without running anything; mistakes raise."""
    with ExitStack() as made:
        context = shell.make_context("nabla", list(words), obj=ShellState())
        made.callback(context.close)  # some options set a variable until then
        command, rest = shell, [*context._protected_args, *context.args]
        while isinstance(command, click.Group) and rest:
            name, command, rest = command.resolve_command(context, rest)
            context = command.make_context(name, rest, parent=context)
            made.callback(context.close)
            rest = [*context._protected_args, *context.args]


@per_document
def test_its_links_lead_to_something(document):
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))

    wanted = [link for link in LINK.findall(text) if "://" not in link]

    assert [link for link in wanted if not (document.parent / link).exists()] == []


@per_document
def test_its_python_is_python(document):
    for kind, block in BLOCK.findall(document.read_text(encoding="utf-8")):
        if kind == "python":
            compile(block, str(document), "exec")


@per_document
def test_its_commands_and_their_options_exist(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files to write are looked at
    for words in commands_in(document):
        parse(words[1:])
