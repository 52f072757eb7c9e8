"""`interleave agreement`: how far a judge agrees with people, or with another judge."""

from pathlib import Path
from typing import Annotated

import typer

from .options import HomeOption, ProfileOption, enable_interrupts

_SHOWN = 10


def agreement(
    first: Annotated[
        str, typer.Argument(help="An official file of OpENING's verdicts, or a run (`report`).")
    ],
    second: Annotated[
        str | None, typer.Argument(help="Another one; default: what --judge says.")
    ] = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    judge: Annotated[
        str | None, typer.Option(help="BACKEND/MODEL that judges the same comparisons.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="With --judge: folder of OpENING's official files.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="With --judge: folder of the systems' answers.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="So many comparisons, drawn by chance.")
    ] = None,
) -> None:
    """Compare a judge with people, or with another judge: agreement, kappa, intervals.

    Example: `interleave agreement judge_modelAB_results.json --judge openai/gpt-4.1 --source
    OpENING --answers OpENING/gen_outputs --sample 200`
    """
    from rich.console import Console

    from assets.core.profile import load_profile
    from assets.core.progress import reporting_to
    from schemas import FoundryError
    from warehouse import Home

    from ..agreement import compare_labels, labels_of_judge, read_labels
    from ..benchmarks import judge_settings
    from .run_screen import terminal_progress

    enable_interrupts()
    place, settings, console = Home(home), load_profile(profile), Console()
    one = read_labels(place, first)
    if second is not None:
        other = read_labels(place, second)
    else:
        chosen = judge_settings(settings, judge)
        if chosen is None or source is None or answers is None:
            raise FoundryError("name a second file or run, or --judge, --source and --answers")
        with terminal_progress(console) as progress, reporting_to(progress):
            other = labels_of_judge(settings, place, chosen, Path(first), source, answers, sample)
    done = compare_labels(one, other, sample if second is not None else None)
    console.print(f"{done.first} and {done.second}")
    for name, value in (("agreement", done.result.share), ("kappa", done.result.kappa)):
        known = f"{value.mean:.3f} ({value.low:.3f} to {value.high:.3f})" if value else "missing"
        console.print(f"  {name}: {known}")
    count = done.result.share.count if done.result.share else 0
    console.print(f"  {count} cases; {done.result.unscored:.1%} unscored by one of them")
    for case in done.differing[:_SHOWN]:
        label = " / ".join(map(str, case)) if isinstance(case, tuple) else str(case)
        console.print(f"  differ: {label}: {one[1][case]} and {other[1][case]}", markup=False)
