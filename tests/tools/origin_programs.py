"""Faulty programs as test cases: what their verdict must say, and the line that it must name."""

import inspect

import pytest

__all__ = ["Programs", "lines_of"]


class Programs(list):
    """Cases of one file, as parameters of a test: the program and what is expected."""

    def __call__(self, rule, phase, op, step, **place):
        """Note the decorated program; the line to be named ends in ``# born``."""

        def note(function):
            expected = (rule, phase, op, step, place)
            self.append(pytest.param(function, expected, id=function.__name__))
            return function

        return note


def lines_of(function):
    """Return the numbers of the lines of a function that end in ``# born``."""
    lines, first = inspect.getsourcelines(function)
    return {first + index for index, line in enumerate(lines) if line.rstrip().endswith("# born")}
