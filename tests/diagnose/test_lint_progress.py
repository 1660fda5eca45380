"""A long lint shows how far it has come, where a person can see it."""

import io

from nabla_diagnose.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, seconds, **options):
    """What a lint of a thousand rows a second writes."""
    clock = iter([0.0, *(second for second in seconds for _ in range(2))])
    with Progress("a.csv", stream=stream, clock=lambda: next(clock), **options) as progress:
        for second in seconds:
            progress(int(1000 * second))
    return stream.getvalue()


def test_a_terminal_shows_the_rows_and_is_wiped():
    text = shown(Terminal(), [1.5, 2.0])

    assert text.startswith("\rlint a.csv: 1,500 rows\rlint a.csv: 2,000 rows\r ")
    assert text.endswith(" \r")


def test_several_logs_are_counted():
    assert "a.csv (2/7): 1,500 rows" in shown(Terminal(), [1.5], number=2, logs=7)


def test_a_short_lint_shows_nothing():
    assert shown(Terminal(), [0.1, 0.5]) == ""


def test_a_pipe_gets_nothing():
    assert shown(io.StringIO(), [1.5, 2.0]) == ""


def test_a_name_cannot_steer_the_terminal():
    stream, clock = Terminal(), iter([0.0, 2.0, 2.0])
    with Progress("a\x1b[2Jb.csv", stream=stream, clock=lambda: next(clock)) as progress:
        progress(1)

    assert "\x1b" not in stream.getvalue()
