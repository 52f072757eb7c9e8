"""`interleave evaluate`, `report` and `agreement`: benchmarks, their results, and their judges."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from assets.benchmarks.agreement import Verdicts
    from assets.core.foundry import FoundryResource
    from assets.core.statistics import Agreement
    from schemas.benchmarks import BenchmarkResultRow
    from warehouse import Home

    from ..benchmarks import RunEstimate

_SHOWN = 10


NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Benchmarks; default: those of the profile. `list` shows all."),
]
SourceOption = Annotated[
    str | None,
    typer.Option(help="Folder of the official files, or id of a data set on the Hugging Face Hub."),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Number of items, spread evenly over all groups.")
]
JudgeOption = Annotated[
    str | None, typer.Option(help="Judge as BACKEND/MODEL; default: the profile's.")
]
AnswersOption = Annotated[
    Path | None, typer.Option(help="Answers of another system, in the benchmark's official layout.")
]
EstimateOption = Annotated[
    bool, typer.Option("--estimate", help="Only print the expected calls and cost; run nothing.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Run again what is up to date; finished calls are reused.")
]


def evaluate(
    benchmarks: NamesArgument = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    source: SourceOption = None,
    limit: LimitOption = None,
    judge: JudgeOption = None,
    answers: AnswersOption = None,
    system: Annotated[str | None, typer.Option(help="Name of the other system.")] = None,
    seed: Annotated[int | None, typer.Option(help="For generated items.")] = None,
    difficulty: Annotated[int | None, typer.Option(min=1, help="For generated items.")] = None,
    estimate: EstimateOption = False,
    force: ForceOption = False,
) -> None:
    """Evaluate the agents on benchmarks, with a judge and the official metrics.

    Example: `interleave evaluate sketch-interleaved sketch-edits`
    """
    from assets.benchmarks.runs import NAMES
    from assets.core.foundry import FoundryResource

    from ..benchmarks import with_runs

    if benchmarks == ["list"]:
        typer.echo("\n".join(NAMES))
        return
    enable_interrupts()
    changes = {"source": source, "limit": limit, "seed": seed, "difficulty": difficulty}
    own = FoundryResource(profile=profile, root=home)
    foundry = with_runs(own, benchmarks or [], judge, answers, system, **changes)
    _evaluate(foundry, estimate, force)


def _evaluate(foundry: "FoundryResource", only_estimate: bool, force: bool) -> None:
    from ..benchmarks import estimates, evaluate_benchmarks
    from ..instance import open_instance
    from .run_screen import terminal_progress

    console = Console()
    for each in estimates(foundry):
        console.print(_estimate_line(each), soft_wrap=True, highlight=False)
    if only_estimate:
        return
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        terminal_progress(console),
    ):
        results = evaluate_benchmarks(foundry, instance, console.print, force)
    _show_results(console, results)


def _estimate_line(run: "RunEstimate") -> str:
    asked = f"at least {run.questions:,} questions to {run.judge}" if run.questions else run.judge
    costs = ", ".join(
        f"{role.role} {role.calls:,} calls, "
        + ("no price of it is known" if role.usd is None else f"about {role.usd:,.2f} USD")
        + ("" if role.measured else " (assumed)")
        for role in run.roles
        if role.usd != 0
    )
    return f"{run.run}: {run.items} items; {asked}" + (f"; {costs}" if costs else "")


def _show_results(console: Console, rows: "list[BenchmarkResultRow]") -> None:
    """A table for every run."""
    from itertools import groupby

    from assets.benchmarks.results import number_cells

    for (benchmark, system, judge), own in groupby(
        rows, key=lambda row: (row.benchmark, row.system, row.judge)
    ):
        first, *others = own
        table = Table("number", "value", f"{first.confidence:.0%} interval", box=None)
        for row in (first, *others):
            table.add_row(*number_cells(row), style="bold" if row.headline else "")
        console.print(f"\n[bold]{benchmark}[/] by {system}, judged by {judge}", highlight=False)
        console.print(f"{first.items} of {first.of_items} items, {first.unscored:.1%} unscored")
        console.print(table)


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(help="One run, or two to compare; default: list all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file; default: report.html in this folder.")
    ] = None,
    agents: Annotated[
        bool,
        typer.Option(
            "--agents",
            help="Print instead, as Markdown, how good the trained agents are on test items, and "
            "which of the paper's relations hold (of the ablation, else of evaluation).",
        ),
    ] = False,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
) -> None:
    """Write a report of benchmark runs: numbers, published ones, worst items, two runs compared.

    Examples: `interleave report wise-legacy.gpu-1a2b3c4d.5e6f7081`, `interleave report --agents`
    """
    if agents:
        return _print_agents(profile, home)
    from assets.benchmarks.report import write_report
    from assets.benchmarks.results import Run, run_names
    from schemas import FoundryError
    from warehouse import Home

    place = Home(home)
    if not runs:
        typer.echo(
            "\n".join(run_names(place)) or "No runs yet: create one with `interleave evaluate`."
        )
        return
    if len(runs) > 2:
        raise FoundryError("name one run, or two to compare")
    chosen = [Run.read(place, name) for name in runs]
    typer.echo(str(write_report(place, chosen, (out or Path("report.html")).absolute())))


def _print_agents(profile: str, home: str) -> None:
    from assets.core.foundry import FoundryResource
    from assets.evaluation.metrics import markdown, test_summaries
    from schemas import FoundryError
    from schemas.training import EVALUATIONS

    foundry = FoundryResource(profile=profile, root=home)
    summaries = test_summaries(foundry.rows(EVALUATIONS), foundry.settings.evaluation)
    if not summaries:
        hint = "materialize `evaluation`, or `ablation` for all variants and training seeds"
        raise FoundryError(f"{home} has no values of test items: {hint}")
    typer.echo(markdown(summaries))


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
SecondJudgeOption = Annotated[
    str | None, typer.Option(help="BACKEND/MODEL that judges the same items.")
]
SecondSourceOption = Annotated[
    str | None,
    typer.Option(help="With --judge: folder of the benchmark's official files, or a Hub id."),
]
SecondAnswersOption = Annotated[
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
    judge: SecondJudgeOption = None,
    source: SecondSourceOption = None,
    answers: SecondAnswersOption = None,
    sample: SampleOption = None,
    out: OutOption = None,
) -> None:
    """Compare a judge with human verdicts or another judge: agreement, kappa, intervals.

    Example: `interleave agreement judge_modelAB_results.json --judge openai/gpt-4.1 --source
    OPENING --answers OPENING/gen_outputs --sample 200`
    """
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
        other = _judge_again(one, place, profile, judge, source, answers, sample)
    _show_agreement(console, one, other, compare_verdicts(one, other, sample if second else None))
    if out is not None and one.run and other.run:
        write_report(place, [one.run, other.run], out.absolute())
        console.print(f"  pictures that they differ on: {out}", soft_wrap=True)


def _judge_again(
    one: "Verdicts", home: "Home", profile: str, judge: str | None, *options: Any
) -> "Verdicts":
    """The verdicts of the judge that is named, while a terminal shows its progress."""
    from assets.benchmarks.agreement import judge_again
    from assets.core.profile import load_profile
    from schemas import FoundryError

    from ..benchmarks import judge_settings
    from .run_screen import terminal_progress

    settings = load_profile(profile)
    chosen = judge_settings(settings, judge)
    if chosen is None:
        raise FoundryError("name a second file or run, or a judge with --judge BACKEND/MODEL")
    with terminal_progress(Console()):
        return judge_again(one, settings, home, chosen, *options)


def _show_agreement(
    console: Console, one: "Verdicts", other: "Verdicts", found: "Agreement"
) -> None:
    console.print(f"{one.name} and {other.name}")
    for name, value in (("agreement", found.share), ("kappa", found.kappa)):
        console.print(f"  {name}: {value.in_words() if value else 'missing'}")
    count = found.share.count if found.share else 0
    console.print(f"  {count} cases; {found.unscored:.1%} unscored by one of them")
    for case in found.differing[:_SHOWN]:
        label = " / ".join(map(str, case)) if isinstance(case, tuple) else str(case)
        labels = f"{one.labels[case]} and {other.labels[case]}"
        console.print(f"  differ: {label}: {labels}", markup=False)
