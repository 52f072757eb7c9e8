"""`interleave generate`: one request answered in the terminal, and the sequence as a file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas.trajectories import OnExhausted

from .options import HomeOption, PlannerOption, ProfileOption, enable_interrupts, named_agents

TextArgument = Annotated[
    str,
    typer.Argument(
        help="Describe what you want to see; `<image>` marks the place of an input image."
    ),
]
ImageOption = Annotated[
    list[Path] | None,
    typer.Option(help="Input image, to continue from or to describe; repeat for more."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Output file: .html, .md or .zip; default: a new story.html in this folder."),
]
CriticOption = Annotated[
    str | None,
    typer.Option(
        help="Critic: `rl` or `sft`, trained here; `promoted`, name@version, a folder, an id "
        "at Hugging Face; `base`: the profile's own agents; default: the one in use."
    ),
]
ExhaustedOption = Annotated[
    OnExhausted | None,
    typer.Option(help="If no attempt is accepted: use the last or the best one, or stop."),
]
ConditioningOption = Annotated[
    Literal["last", "all"] | None,
    typer.Option(help="Images that the generator gets: the last one, or all so far."),
]
CandidatesOption = Annotated[
    int | None, typer.Option(help="Images per attempt; the first accepted one is used.")
]
DrawAheadOption = Annotated[
    bool | None, typer.Option(help="Draw the next step while the critic judges this one.")
]


def generate(
    context: typer.Context,
    text: TextArgument,
    image: ImageOption = None,
    out: OutOption = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    planner: PlannerOption = None,
    critic: CriticOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Another seed gives other images of the same request.")
    ] = None,
    t_max: Annotated[int | None, typer.Option(help="Maximum attempts per step.")] = None,
    on_exhausted: ExhaustedOption = None,
    conditioning: ConditioningOption = None,
    candidates: CandidatesOption = None,
    max_steps: Annotated[int | None, typer.Option(help="Maximum steps of a plan.")] = None,
    draw_ahead: DrawAheadOption = None,
) -> None:
    """Answer one request in images and text, and save the result as a file.

    Defaults are those of the profile's section `loop`.

    Example: `interleave generate "How to build a snowman" --out snowman.html`
    """
    from inference.generation.agent_resolver import TRAINED_CRITICS
    from inference.generation.requests import GenerationOptions

    from .generate_screen import generate_in_terminal

    enable_interrupts()
    options = {
        name: value
        for name, value in context.params.items()
        if name in GenerationOptions.model_fields and value is not None
    }
    trained = critic if critic in TRAINED_CRITICS else None
    named = named_agents(planner, None if trained else critic)
    raise typer.Exit(
        generate_in_terminal(text, image or [], options, named, trained, profile, home, out)
    )
