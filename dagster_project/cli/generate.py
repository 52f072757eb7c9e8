"""`interleave generate`: one request answered in the terminal, and the sequence as a file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas.trajectories import OnExhausted

from .options import HomeOption, ProfileOption, enable_interrupts

CriticName = Literal["rl", "sft"]
Conditioning = Literal["last", "all"]


def generate(
    text: Annotated[
        str, typer.Argument(help="What to tell; `<image>` may stand for the given pictures.")
    ],
    image: Annotated[
        list[Path] | None,
        typer.Option(help="A picture to go on from or to describe; may be given several times."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the story goes: a file .html, .md or .zip. Default: a new story.html here."
        ),
    ] = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    critic: Annotated[
        CriticName | None,
        typer.Option(help="Checkpoint that judges, by its training; default: the one in use."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Other pictures of the same request.")] = None,
    t_max: Annotated[int | None, typer.Option(help="Attempts allowed for a step.")] = None,
    on_exhausted: Annotated[
        OnExhausted | None,
        typer.Option(help="When none is accepted: keep the last or the best one, or stop."),
    ] = None,
    conditioning: Annotated[
        Conditioning | None,
        typer.Option(help="What the generator is shown: the last picture, or all of the story."),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Pictures drawn for each prompt; the first good one counts.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="A plan with more steps is refused.")
    ] = None,
    draw_ahead: Annotated[
        bool | None,
        typer.Option(help="Draw the next step while the critic still looks at this one."),
    ] = None,
) -> None:
    """Tell one story, and keep it as a file.

    What a profile says in section loop holds where an option is left out.

    Example: `interleave generate "How to build a snowman" --out snowman.html`
    """
    from .generate_screen import GenerateCommand, generate_in_terminal

    enable_interrupts()
    options = {
        "seed": seed,
        "t_max": t_max,
        "on_exhausted": on_exhausted,
        "conditioning": conditioning,
        "candidates": candidates,
        "max_steps": max_steps,
        "draw_ahead": draw_ahead,
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    command = GenerateCommand(text, image or [], chosen, critic)
    raise typer.Exit(generate_in_terminal(command, profile, home, out))
