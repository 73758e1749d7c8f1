"""The entry of `rlhf`, and of `kubectl rlhf`.

A subcommand is a line in `COMMANDS`: its module is imported only when it runs, so that `rlhf --help` and shell
completion answer at once however heavy a command is.
"""

import importlib
from dataclasses import dataclass
from typing import Any

import click

from rlhf_cli.program import name_of_start


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """Where a subcommand is, and the line that `rlhf --help` shows for it."""

    location: str
    help: str


COMMANDS = {
    "run": LazyCommand(location="rlhf_cli.run:run", help="Run a job for real on this machine, without Kubernetes."),
    "validate": LazyCommand(location="rlhf_cli.validate:validate", help="Check manifests without a cluster."),
    "submit": LazyCommand(location="rlhf_cli.submit:submit", help="Create or change jobs on a cluster."),
    "status": LazyCommand(location="rlhf_cli.status:status", help="Show jobs, their roles and their progress."),
    "logs": LazyCommand(location="rlhf_cli.logs:logs", help="Print what the controller or a role writes."),
    "restart": LazyCommand(location="rlhf_cli.restart:restart", help="Restart one role; the others go on."),
    "scale": LazyCommand(location="rlhf_cli.scale:scale", help="Change a role's replicas while the job trains."),
    "suspend": LazyCommand(location="rlhf_cli.suspend:suspend", help="Save a snapshot and free every pod and GPU."),
    "resume": LazyCommand(location="rlhf_cli.resume:resume", help="Go on with a suspended job."),
    "delete": LazyCommand(location="rlhf_cli.delete:delete", help="Delete a job and what belongs to it."),
    "crd": LazyCommand(location="rlhf_cli.crd:crd", help="Print the CustomResourceDefinition of RLHFJob."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Begin a command line, under the name that the user typed."""
        return super().make_context(name_of_start() or info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].location.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rlhf-operator", message="%(prog)s %(version)s")
def main() -> None:
    """RLHF jobs on Kubernetes: one worker group, node pool and failure domain per role."""
