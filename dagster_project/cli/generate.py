"""`interleave generate`: one request answered in the terminal, and the sequence as a file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas.trajectories import OnExhausted

from .options import HomeOption, ProfileOption, enable_interrupts

TextArgument = Annotated[
    str, typer.Argument(help="What to show; `<image>` may stand for the given pictures.")
]
ImageOption = Annotated[
    list[Path] | None,
    typer.Option(help="A picture to go on from or to describe; may be given several times."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="Where the story goes: a file .html, .md or .zip. Default: a new story.html here."
    ),
]
CriticOption = Annotated[
    Literal["rl", "sft"] | None,
    typer.Option(help="Checkpoint that judges, by its training; default: the one in use."),
]
ExhaustedOption = Annotated[
    OnExhausted | None,
    typer.Option(help="When none is accepted: keep the last or the best one, or stop."),
]
ConditioningOption = Annotated[
    Literal["last", "all"] | None,
    typer.Option(help="What the generator is shown: the last picture, or all of the story."),
]
CandidatesOption = Annotated[
    int | None, typer.Option(help="Pictures drawn for each prompt; the first good one counts.")
]
DrawAheadOption = Annotated[
    bool | None, typer.Option(help="Draw the next step while the critic still looks at this one.")
]


def generate(
    context: typer.Context,
    text: TextArgument,
    image: ImageOption = None,
    out: OutOption = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    critic: CriticOption = None,
    seed: Annotated[int | None, typer.Option(help="Other pictures of the same request.")] = None,
    t_max: Annotated[int | None, typer.Option(help="Attempts allowed for a step.")] = None,
    on_exhausted: ExhaustedOption = None,
    conditioning: ConditioningOption = None,
    candidates: CandidatesOption = None,
    max_steps: Annotated[
        int | None, typer.Option(help="A plan with more steps is refused.")
    ] = None,
    draw_ahead: DrawAheadOption = None,
) -> None:
    """Tell one story, and keep it as a file.

    What a profile says in section loop holds where an option is left out.

    Example: `interleave generate "How to build a snowman" --out snowman.html`
    """
    from inference.generation.requests import GenerationOptions

    from .generate_screen import generate_in_terminal

    enable_interrupts()
    options = {
        name: value
        for name, value in context.params.items()
        if name in GenerationOptions.model_fields and value is not None
    }
    raise typer.Exit(generate_in_terminal(text, image or [], options, critic, profile, home, out))
