"""The ``nabla`` command: options before the command, lazy commands, exit codes."""

from __future__ import annotations

import errno
import io
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from ..declarations import Command
from ..errors import PluginError, UsageError
from .builtin import COMMANDS
from .state import ColorChoice, ShellState

__all__ = ["LazyGroup", "run_shell", "shell"]

EXIT_USAGE, EXIT_INTERNAL, EXIT_INTERRUPTED = 2, 3, 130
_LONGEST_NAME = 80
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyGroup(click.Group):
    """Commands of the core and of plugins; a command's module is imported only when it runs."""

    def invoke(self, ctx: click.Context) -> object:
        """Let the options before the command decide which plugins exist, then find the command."""
        ctx.obj = _state(ctx.params)
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names; this loads the plugins but none of their commands."""
        return sorted(self._declared(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; the core's own need no plugin."""
        own = {command.name: command for command in COMMANDS}
        found = own.get(cmd_name) or self._declared(ctx).get(cmd_name)
        if found is None:
            return None
        command = found.load()
        if not isinstance(command, click.Command):
            raise PluginError(
                "NAB002", f"{found.target} is no click command", "report this to its authors"
            )
        if not _runs_a_program(command):
            _write_whatever_is_said()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from their declarations, importing none."""
        rows = [
            (command.name, command.summary) for _, command in sorted(self._declared(ctx).items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one is near."""
        from ..binder import closest

        if args and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}{closest(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    @staticmethod
    def _declared(ctx: click.Context) -> dict[str, Command]:
        state = ctx.find_object(ShellState)
        if state is None:  # --help is handled before the options that make the state
            state = ctx.obj = ShellState()
        return state.host.commands


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-p", "block", multiple=True, metavar="no:NAME", help="Do not load a plugin.")
@click.option("--no-plugins", is_flag=True, help="Load no plugin from outside the project.")
@click.option("--strict-plugins", is_flag=True, help="Exit with 5 when a plugin has a problem.")
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="Configuration file."
)
@click.option("--no-config", is_flag=True, help="Read no configuration file.")
@click.option("-q", "--quiet", is_flag=True, help="Only the report.")
@click.option("-v", "--verbose", count=True, help="More detail.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.version_option(package_name="nabla-core", prog_name="nabla", message="%(prog)s %(version)s")
def shell(**flags: object) -> None:
    """Find out why a PyTorch program is wrong, with numbers that can be replayed."""
    del flags  # read by LazyGroup.invoke, before the command is looked up


def _runs_a_program(command: click.Command) -> bool:
    """Whether words are handed on to a program, whose standard output is its own affair."""
    return any(parameter.type is click.UNPROCESSED for parameter in command.params)


def _write_whatever_is_said() -> None:
    """Let a standard output that cannot hold a character (``LC_ALL=C``) spell it instead."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def run_shell(words: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        code = shell.main(args=list(words), prog_name="nabla", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("nabla: interrupted", err=True)
        return EXIT_INTERRUPTED
    except UsageError as error:
        for line in str(error).splitlines():
            click.echo(f"nabla: error: {line}", err=True)
        return EXIT_USAGE
    except PluginError as error:
        click.echo(f"nabla: {error.rule_id}: {error}\n       {error.hint}", err=True)
        return EXIT_INTERNAL
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the report has gone away; nothing is left to say
        return EXIT_INTERNAL
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say which file the system refused (a name too long, no room), else that nabla is at fault."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        shown = error.filename[:_LONGEST_NAME]
        click.echo(f"nabla: error: {shown}: {error.strerror}", err=True)
        return EXIT_USAGE
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        click.echo(f"nabla: error: the output cannot be written: {error.strerror}", err=True)
        return EXIT_USAGE
    traceback.print_exception(error)
    click.echo(
        f"nabla: internal error ({type(error).__name__}): please report it with the traceback "
        "above and `nabla plugins`",
        err=True,
    )
    return EXIT_INTERNAL


def _state(flags: Mapping[str, object]) -> ShellState:
    path, color, block = flags["config_path"], flags["color"], flags["block"]
    if flags["quiet"] and flags["verbose"]:
        raise click.UsageError("-q and -v exclude each other")
    verbose = flags["verbose"]
    return ShellState(
        block=block if isinstance(block, tuple) else (),
        third_party=not flags["no_plugins"],
        strict_plugins=bool(flags["strict_plugins"]),
        config_path=path if isinstance(path, Path) else None,
        use_config=not flags["no_config"],
        verbose=-1 if flags["quiet"] else (verbose if isinstance(verbose, int) else 0),
        color=_color(color),
    )


def _color(value: object) -> ColorChoice:
    if value == "always":
        return "always"
    return "never" if value == "never" else "auto"
