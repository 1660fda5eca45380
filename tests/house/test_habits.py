"""What the style guide forbids, looked for in the syntax tree."""

import ast
import re

PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"torch.load", "torch.save", "numpy.load", "np.load"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def places(sources, kinds, wrong):
    return [
        f"{source.name}:{node.lineno}"
        for source in sources
        for node in source.nodes(*kinds)
        if wrong(source, node)
    ]


def test_only_rules_make_issues(sources):
    # a stored report is read back as it was written
    makers = {"nabla_core.rule", "nabla_core.report_reader"}

    def makes_issue(source, node):
        called = ast.unparse(node.func).split(".")[-1]
        return called == "Issue" and source.module not in makers

    assert places(sources, [ast.Call], makes_issue) == []


def test_nothing_is_pickled(sources):
    imported = [
        f"{source.name}:{line}"
        for source in sources
        for line, module, _ in source.imports()
        if module.split(".")[0] in PICKLERS
    ]
    renamed = [
        f"{source.name}:{line}"
        for source in sources
        for line, module, name in source.imports()
        if f"{module}.{name}" in UNSAFE_CALLS
    ]
    called = places(sources, [ast.Call], reads_a_pickle)

    assert imported + renamed + called == []


def reads_a_pickle(source, node):
    """Taking over a foreign checkpoint is a command of its own, and uses the restricted reader."""
    name = ast.unparse(node.func)
    restricted = any(
        keyword.arg == "weights_only" and ast.unparse(keyword.value) == "True"
        for keyword in node.keywords
    )
    importer = source.module == "nabla_replay.importing" and restricted
    return name in UNSAFE_CALLS and not (importer and name == "torch.load")


def test_nothing_is_left_unfinished(sources):
    marked = [
        f"{source.name}:{number}"
        for source in sources
        for number, line in enumerate(source.text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    missing = places(
        sources,
        [ast.Raise],
        lambda source, node: "NotImplementedError" in ast.unparse(node),
    )

    assert marked + missing == []


def test_no_exception_is_swallowed(sources):
    def swallows(source, node):
        broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
        silent = all(isinstance(statement, ast.Pass) for statement in node.body)
        return node.type is None or (broad and silent)

    assert places(sources, [ast.ExceptHandler], swallows) == []


def test_public_signatures_say_no_any(sources):
    def says_any(source, node):
        if node.name.startswith("_"):
            return False
        given = node.args
        notes = [a.annotation for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        shown = [ast.unparse(note) for note in [*notes, node.returns] if note is not None]
        # a dataclass field of any type has no other spelling
        return any(re.search(r"\bAny\b", text.replace("Field[Any]", "")) for text in shown)

    assert places(sources, [ast.FunctionDef, ast.AsyncFunctionDef], says_any) == []
