"""Files and functions stay small enough to be read at once."""

import ast

MAX_FUNCTION_LINES = 40
MAX_FILE_LINES = 350
MAX_PARAMETERS = 6


def lines_without_docstring(function):
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def parameters(function):
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def functions(source):
    return source.nodes(ast.FunctionDef, ast.AsyncFunctionDef)


def test_functions_have_at_most_40_lines(sources):
    long = [
        f"{source.name}:{function.lineno} {function.name}: {lines_without_docstring(function)}"
        for source in sources
        for function in functions(source)
        if lines_without_docstring(function) > MAX_FUNCTION_LINES
    ]

    assert long == []


def test_functions_have_at_most_6_parameters(sources):
    many = [
        f"{source.name}:{function.lineno} {function.name}: {len(parameters(function))}"
        for source in sources
        for function in functions(source)
        if len(parameters(function)) > MAX_PARAMETERS
    ]

    assert many == []


def test_files_have_at_most_350_lines(sources):
    long = {
        source.name: source.text.count("\n")
        for source in sources
        if source.text.count("\n") > MAX_FILE_LINES
    }

    assert long == {}


def test_public_modules_say_what_is_public(sources):
    silent = []
    for source in sources:
        private = any(part.startswith("_") for part in source.module.split("."))
        if (
            private
            or source.path.name in ("plugin.py", "__main__.py")
            or len(source.tree.body) <= 1
        ):
            continue  # hook implementations, entry points, and packages without a name of their own
        targets = [t for node in source.tree.body for t in assigned_names(node)]
        if "__all__" not in targets:
            silent.append(source.name)

    assert silent == []


def assigned_names(node):
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []
