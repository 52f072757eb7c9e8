"""Options that several commands share."""

import signal
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from inference.backends.checkpoint.manifest import AgentRole

ProfileOption = Annotated[
    str, typer.Option(envvar="INTERLEAVE_PROFILE", help="Profile name, or path of a YAML file.")
]
HomeOption = Annotated[
    str, typer.Option(envvar="INTERLEAVE_HOME", help="Folder or fsspec URL of the lake.")
]

PlannerOption = Annotated[
    str | None,
    typer.Option(
        help="Planner: `promoted`, name@version, a folder, or an id at Hugging Face; default: the "
        "one in use."
    ),
]


def enable_interrupts() -> None:
    """Obey SIGINT also where a shell disabled it, as it does for commands in the background.

    Dagster treats SIGTERM as SIGINT, so that this is needed for either.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def named_agents(planner: str | None, critic: str | None) -> "dict[AgentRole, str]":
    """References of the roles that have one."""
    named: dict[AgentRole, str | None] = {"planner": planner, "critic": critic}
    return {role: reference for role, reference in named.items() if reference}
