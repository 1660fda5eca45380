"""The source files of all distributions, parsed once."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One parsed source file; ``module`` is its dotted name."""

    path: Path
    package: str
    module: str
    text: str
    tree: ast.Module

    @property
    def name(self):
        return str(self.path.relative_to(ROOT))

    def nodes(self, *kinds):
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]

    def imports(self):
        """Yield ``(line, absolute module, imported name)`` of every import, nested ones too."""
        for node in self.nodes(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name, ""
            else:
                for alias in node.names:
                    yield node.lineno, self.absolute(node), alias.name

    def absolute(self, node):
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        is_package = self.path.name == "__init__.py"
        kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
        return ".".join([*kept, *([node.module] if node.module else [])])


def read_source(root, path):
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    text = path.read_text()
    return Source(path, parts[0], ".".join(parts), text, ast.parse(text))


@pytest.fixture(scope="session")
def source_roots():
    found = [*ROOT.glob("nabla_*/src"), *ROOT.glob("plugins/*/src")]
    assert len(found) >= 4
    return sorted(found)


@pytest.fixture(scope="session")
def sources(source_roots):
    files = [(root, path) for root in source_roots for path in sorted(root.rglob("*.py"))]
    return [read_source(root, path) for root, path in files]


@pytest.fixture(scope="session")
def packages(sources):
    return sorted({source.package for source in sources})
