"""The entry of `rlhf`, and of `kubectl rlhf`.

A subcommand is a line in `COMMANDS`: its module is imported only when it runs, so that `rlhf --help` and shell
completion answer at once however heavy a command is.
"""

import importlib
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """Where a subcommand is, and the line that `rlhf --help` shows for it."""

    location: str
    help: str


COMMANDS = {
    "run": LazyCommand(location="rlhf_cli.run:run", help="Run a job for real on this machine, without Kubernetes."),
    "validate": LazyCommand(location="rlhf_cli.validate:validate", help="Check manifests without a cluster."),
    "crd": LazyCommand(location="rlhf_cli.crd:crd", help="Print the CustomResourceDefinition of RLHFJob."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

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
