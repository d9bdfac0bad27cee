"""The reference of the command line as a page: every command with its arguments and options, from the parser itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from fedsvm.scenarios.cli import application
from tools.markdown import flat, table


def command_reference() -> str:
    """Return a section for each command of `fedsvm`, as Markdown."""
    return "\n\n".join(_sections(get_command(application()), "fedsvm"))


def _sections(command: Any, name: str) -> Iterator[str]:
    """Yield the section of a command, then those of its subcommands."""
    if name != "fedsvm":
        yield f"## {name}"
        yield flat(command.help or "")
        yield f"```text\n{_usage(command, name)}\n```"
        if rows := [_row(parameter) for parameter in command.params if not parameter.hidden]:
            yield table(("argument or option", "meaning", "default"), rows)
    for word, subcommand in getattr(command, "commands", {}).items():
        yield from _sections(subcommand, f"{name} {word}")


def _usage(command: Any, name: str) -> str:
    """Return a line with the command and its arguments in their order."""
    arguments = [_usage_of(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    return " ".join([name, "[OPTIONS]", *arguments, *(["COMMAND"] if hasattr(command, "commands") else [])])


def _usage_of(argument: Any) -> str:
    word = _name(argument) + ("..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[…]")


def _row(parameter: Any) -> tuple[str, str, str]:
    """Return the cells of a parameter: how it is written, what it means, and its default."""
    if parameter.param_type_name == "argument":
        written = f"`{_name(parameter)}`"
    else:
        written = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    if parameter.required:
        written += " (required)"
    if parameter.nargs == -1 or getattr(parameter, "multiple", False):
        written += " (repeatable)"
    return written, flat(parameter.help or ""), _default(parameter)


def _default(parameter: Any) -> str:
    """Return the default of an option that has one worth naming."""
    value = parameter.default
    return f"`{value}`" if isinstance(value, str | int | float) and value not in ("", True, False) else ""
