"""Imports point one way, stay public, and keep torch out of start-up."""

import ast
import subprocess
import sys

import pytest

TOOLS = {"nabla_check", "nabla_guard", "nabla_trace", "nabla_replay"}
HEAVY = {"torch", "numpy", "jinja2", "rich", "scipy", "networkx", "sympy"}
LIGHT_FILES = {"__init__.py", "__main__.py", "plugin.py", "rules.py", "cli.py"}


def may_import(importer, imported):
    if imported in (importer, "nabla_core"):
        return True
    if importer == "nabla_core":
        return imported == "nabla"
    if importer == "nabla":
        return False
    if importer in TOOLS:
        # capture is driven by the live instrument
        return (importer, imported) == ("nabla_replay", "nabla_guard")
    return imported in TOOLS


def test_imports_point_from_plugins_over_tools_to_core(sources):
    wrong = [
        f"{source.name}:{line} imports {module}"
        for source in sources
        for line, module, _ in source.imports()
        if module.split(".")[0].startswith("nabla")
        and not may_import(source.package, module.split(".")[0])
    ]

    assert wrong == []


def test_nothing_imports_a_private_name_of_a_sibling(sources):
    wrong = [
        f"{source.name}:{line} imports {module}.{name}"
        for source in sources
        for line, module, name in source.imports()
        if module.startswith("nabla")
        and module.split(".")[0] != source.package
        and any(is_private(part) for part in [*module.split("."), name])
    ]

    assert wrong == []


def is_private(part):
    return part.startswith("_") and not part.startswith("__")


def module_level(statements):
    """Yield imports that run when the module is imported."""
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from module_level(statement.orelse)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "handlers", "finalbody"):
                yield from module_level(getattr(statement, field, []))


def test_light_files_import_nothing_heavy_at_module_level(sources):
    wrong = []
    for source in sources:
        if source.path.name not in LIGHT_FILES:
            continue
        for node in module_level(source.tree.body):
            names = [alias.name for alias in node.names]
            modules = names if isinstance(node, ast.Import) else [node.module or ""]
            heavy = [name for name in modules if name.split(".")[0] in HEAVY]
            wrong += [f"{source.name}:{node.lineno} imports {name}" for name in heavy]

    assert wrong == []


@pytest.mark.parametrize("kind", ["__init__.py", "plugin.py", "rules.py", "cli.py"])
def test_importing_light_files_loads_nothing_heavy(sources, kind):
    modules = [source.module for source in sources if source.path.name == kind]
    assert modules
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "[]"


def test_every_distribution_is_typed(source_roots):
    untyped = [
        str(package)
        for root in source_roots
        for package in root.iterdir()
        if (package / "__init__.py").exists() and not (package / "py.typed").exists()
    ]

    assert untyped == []
