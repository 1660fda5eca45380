"""A program under ``nabla run`` cannot tell the difference: each is compared with ``python``."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

PYTHON = [sys.executable]
NABLA = [str(Path(sys.executable).with_name("nabla")), "--no-config", "run"]

SAME_AS_PYTHON = {
    "names": """
        import sys
        print(sorted(globals()), __name__, __file__, __spec__, __package__, __builtins__)
        print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals())
        x: int = 1
        print(__annotations__, type(__loader__).__name__, __loader__.path)
    """,
    "arguments": "import sys; print(sys.argv[1:])",
    "exit_code": "import sys; print('bye'); sys.exit(3)",
    "exit_text": "import sys; sys.exit('no batch left')",
    "exit_none": "import sys; sys.exit()",
    "exit_true": "raise SystemExit(True)",
    "chained_errors": """
        def fail():
            try:
                {}["missing"]
            except KeyError as error:
                raise ValueError("bad key") from error
        fail()
    """,
    "error_group": "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])",
    "own_excepthook": """
        import sys
        sys.excepthook = lambda kind, error, trace: print("hook", kind, error, trace.tb_lineno,
                                                          sys.exc_info(), sys.last_value is error)
        raise ValueError("x")
    """,
    "broken_excepthook": """
        import sys
        def hook(*error):
            raise ZeroDivisionError
        sys.excepthook = hook
        raise ValueError("x")
    """,
    "exit_in_excepthook": """
        import sys
        sys.excepthook = lambda *error: sys.exit(7)
        raise ValueError("x")
    """,
    "end_of_process": """
        import atexit, threading, time
        atexit.register(print, "registered first")
        atexit.register(print, "registered last")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
        print("main")
    """,
    "idle_executor": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        print(pool.submit(lambda: 5).result())
    """,
    "error_in_thread": """
        import threading
        thread = threading.Thread(target=lambda: 1 / 0, name="worker")
        thread.start()
        thread.join()
    """,
    "classes_of_main": """
        import dataclasses, inspect, pickle
        @dataclasses.dataclass
        class Point:
            x: int
        print(pickle.loads(pickle.dumps(Point(2))), Point.__module__, Point.__annotations__)
        print(inspect.getsource(Point))
    """,
    "spawned_worker": """
        import multiprocessing
        def square(x):
            return x * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(square, [3]))
    """,
    "forked_child": """
        import os, sys
        child = os.fork()
        if child == 0:
            print("child", flush=True)
            sys.exit(9)
        print("parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "warnings": """
        import warnings
        warnings.warn("old", DeprecationWarning)
        warnings.warn("careful")
    """,
    "warning_of_torch": """
        import torch
        w = torch.ones(2, requires_grad=True)
        for _ in range(3):
            print(float((w * w).sum()))  # warns once, at this line
    """,
    "caught_interrupt": """
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            print("stopped by hand")
    """,
    "bytes_and_text": """
        import sys
        print(sys.stdin.read(), "∇")
        sys.stdout.flush()
        sys.stdout.buffer.write(bytes(range(256)))
    """,
    "latin_1": b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n",
    "byte_order_mark": b"\xef\xbb\xbfprint(1)\r\nprint('''2\r\n3''')\r\n",
    "not_lazy": "def f(x: unknown): pass",
    "syntax_error": "def f(:\n",
    "closed_streams": "import sys; sys.stdout.close(); sys.stderr.close()",
}


def call(command, folder, stdin=b"spoken"):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NABLA")}
    return subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, timeout=60, env=environment
    )


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
    return path.name


@pytest.mark.parametrize("case", SAME_AS_PYTHON)
def test_output_status_and_tracebacks_are_those_of_python(tmp_path, case):
    script = write(tmp_path / f"case_{case}.py", SAME_AS_PYTHON[case])
    arguments = ["--help", "-q", "--", "--format", "x"]

    plain = call([*PYTHON, script, *arguments], tmp_path)
    watched = call([*NABLA, script, *arguments], tmp_path)

    assert watched.stdout == plain.stdout
    assert watched.returncode == (plain.returncode or 4)  # 4: there was no step to check
    assert watched.stderr.startswith(plain.stderr)
    assert b"NAB0" not in watched.stderr  # it was watched


def test_a_module_runs_as_with_python_m(tmp_path):
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    write(tmp_path / "pack" / "__init__.py", "print('imported', __name__)")
    write(tmp_path / "pack" / "inner" / "__init__.py", "")
    program = """
        import sys
        from . import __name__ as parent
        print(sorted(globals()), __name__, __package__, __spec__.name, __file__, parent)
        print(sys.argv, sys.path[0])
    """
    write(tmp_path / "pack" / "inner" / "__main__.py", program)

    for name in ("pack.inner", "pack.inner.__main__"):
        plain = call([*PYTHON, "-m", name, "-m", "x"], tmp_path)
        watched = call([*NABLA, "-m", name, "-m", "x"], tmp_path)

        assert plain.returncode == 0, plain.stderr
        assert (watched.stdout, watched.returncode) == (plain.stdout, 4)


def test_a_link_to_a_script_finds_its_neighbours(tmp_path):
    (tmp_path / "real").mkdir()
    write(tmp_path / "real" / "neighbour.py", "value = 5")
    write(
        tmp_path / "real" / "script.py", "import neighbour, sys; print(neighbour.value, sys.argv)"
    )
    (tmp_path / "link.py").symlink_to("real/script.py")

    plain = call([*PYTHON, "./real/../link.py"], tmp_path)
    watched = call([*NABLA, "./real/../link.py"], tmp_path)

    assert plain.stdout.startswith(b"5 ")
    assert watched.stdout == plain.stdout


@pytest.mark.parametrize("module", ["click", "difflib", "json"])
def test_own_modules_hide_installed_ones_of_the_same_name(tmp_path, module):
    write(tmp_path / f"{module}.py", "mine = 'mine'")
    script = write(tmp_path / "script.py", f"import {module}; print({module}.mine)")

    watched = call([*NABLA, script], tmp_path)

    assert watched.stdout == b"mine\n", watched.stderr


def test_torch_is_not_imported_for_the_program(tmp_path):
    script = write(tmp_path / "script.py", "import sys; print('torch' in sys.modules)")

    watched = call([*NABLA, script], tmp_path)

    assert watched.stdout == b"False\n"
    assert b"never imported torch" in watched.stderr


def test_a_program_that_ends_before_its_first_step_is_not_called_clean(tmp_path):
    script = write(
        tmp_path / "script.py", "import torch, argparse; argparse.ArgumentParser().parse_args()"
    )

    watched = call([*NABLA, script, "--unknown"], tmp_path)

    assert watched.returncode == 2
    assert b"no optimizer step was seen: this is no clean result" in watched.stderr
    assert watched.stderr.endswith(b"nothing was checked\n")


def test_a_notebook_is_refused_with_what_to_do(tmp_path):
    notebook = write(tmp_path / "train.ipynb", '{"cells": []}')

    watched = call([*NABLA, notebook], tmp_path)

    assert watched.returncode == 2
    assert b"is a notebook: write it as a script first" in watched.stderr


def test_null_bytes_are_a_syntax_error(tmp_path):
    script = write(tmp_path / "script.py", b"print(1)\n\0\n")

    watched = call([*NABLA, script], tmp_path)

    assert (watched.returncode, watched.stdout) == (1, b"")
    assert b"SyntaxError: source code cannot contain null bytes" in watched.stderr
    assert b"nabla_guard" not in watched.stderr


def test_ctrl_c_ends_with_130_and_still_writes_the_report(tmp_path):
    program = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
    script = write(tmp_path / "script.py", program)
    command = [*NABLA, "--format", "json=report.json", script]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background inherits that Ctrl-C is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)  # until the script sleeps

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)

    assert process.returncode == 130
    assert 'File "' in stderr and "script.py" in stderr
    assert "KeyboardInterrupt" in stderr and "nabla_guard" not in stderr
    assert '"exit_code": 130' in (tmp_path / "report.json").read_text()


def test_terminate_ends_the_program_at_once(tmp_path):
    script = write(
        tmp_path / "script.py", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    )

    assert call([*NABLA, script], tmp_path).returncode == -signal.SIGTERM
