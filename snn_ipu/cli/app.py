"""The command group. A command is one file here that defines `command`, and its name in `COMMANDS`."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import click

from .. import errors

COMMANDS = ("train", "info", "build", "throughput", "population", "report")

USER_ERRORS = tuple(
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, Exception) and not issubclass(error, Warning)
)


class UserError(click.ClickException):
    """An error of use: its message alone is printed, exit code 2."""

    exit_code = 2


class App(click.Group):
    """Imports a command's file on use, and turns this package's exceptions into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f".{cmd_name}", __package__).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except USER_ERRORS as e:
            raise UserError(str(e)) from e


app = App(name="snn-ipu", help="Train and measure spiking neural networks on CPU, CUDA and IPU.")
