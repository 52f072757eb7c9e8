"""`interleave agreement`: how far a judge agrees with people, or with another judge."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from rich.console import Console

    from assets.benchmarks.agreement import SecondJudge, Verdicts
    from assets.core.statistics import Agreement
    from warehouse import Home

_SHOWN = 10


FirstArgument = Annotated[
    str,
    typer.Argument(
        help="Official file of OpENING's verdicts, or a run listed by `interleave report`."
    ),
]
SecondArgument = Annotated[
    str | None,
    typer.Argument(help="File or run to compare with; default: the verdicts of --judge."),
]
JudgeOption = Annotated[str | None, typer.Option(help="BACKEND/MODEL that judges the same items.")]
SourceOption = Annotated[
    str | None,
    typer.Option(help="With --judge: folder of the benchmark's official files, or a Hub id."),
]
AnswersOption = Annotated[
    Path | None, typer.Option(help="With --judge and a file: folder of the answers.")
]
SampleOption = Annotated[
    int | None, typer.Option(min=1, help="Size of a random sample of comparisons or answers.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="For runs: output page with the images on which the judges differ."),
]


def agreement(
    first: FirstArgument,
    second: SecondArgument = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    judge: JudgeOption = None,
    source: SourceOption = None,
    answers: AnswersOption = None,
    sample: SampleOption = None,
    out: OutOption = None,
) -> None:
    """Compare a judge with human verdicts or another judge: agreement, kappa, intervals.

    Example: `interleave agreement judge_modelAB_results.json --judge openai/gpt-4.1 --source
    OPENING --answers OPENING/gen_outputs --sample 200`
    """
    from rich.console import Console

    from assets.benchmarks.agreement import compare_verdicts, read_verdicts
    from assets.benchmarks.report import write_report
    from schemas import FoundryError
    from warehouse import Home

    enable_interrupts()
    place, console = Home(home), Console()
    one = read_verdicts(place, first)
    if out is not None and one.run is None:
        raise FoundryError("--out needs a run: a file of verdicts has no pictures")
    if second is not None:
        other = read_verdicts(place, second)
    else:
        with _second_judge(console, place, profile, judge, source, answers, sample) as asked:
            other = asked.judge_same(one)
    _show(console, one, other, compare_verdicts(one, other, sample if second else None))
    if out is not None and one.run and other.run:
        write_report(place, [one.run, other.run], out.absolute())
        console.print(f"  pictures that they differ on: {out}", soft_wrap=True)


@contextmanager
def _second_judge(
    console: "Console", home: "Home", profile: str, judge: str | None, *options: Any
) -> "Iterator[SecondJudge]":
    """The judge that is named, while a terminal shows its progress."""
    from assets.benchmarks.agreement import SecondJudge
    from assets.core.profile import load_profile
    from schemas import FoundryError

    from ..benchmarks import judge_settings
    from .run_screen import terminal_progress

    settings = load_profile(profile)
    chosen = judge_settings(settings, judge)
    if chosen is None:
        raise FoundryError("name a second file or run, or a judge with --judge BACKEND/MODEL")
    with terminal_progress(console):
        yield SecondJudge(settings, home, chosen, *options)


def _show(console: "Console", one: "Verdicts", other: "Verdicts", found: "Agreement") -> None:
    console.print(f"{one.name} and {other.name}")
    for name, value in (("agreement", found.share), ("kappa", found.kappa)):
        console.print(f"  {name}: {value.in_words() if value else 'missing'}")
    count = found.share.count if found.share else 0
    console.print(f"  {count} cases; {found.unscored:.1%} unscored by one of them")
    for case in found.differing[:_SHOWN]:
        label = " / ".join(map(str, case)) if isinstance(case, tuple) else str(case)
        labels = f"{one.labels[case]} and {other.labels[case]}"
        console.print(f"  differ: {label}: {labels}", markup=False)
