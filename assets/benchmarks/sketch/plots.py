"""Success by skill: which skills a system lacks."""

from collections.abc import Sequence

from schemas.benchmarks import BenchmarkResultRow

from ...core.plotting import ACCENT, BAD, GOOD, INK, OTHER, PALE, figure_png, new_figure
from .tasks import SKILLS

_COLOURS = (OTHER, ACCENT, GOOD, BAD, PALE)


def skills_plot(rows: Sequence[BenchmarkResultRow]) -> bytes:
    """Success by skill with intervals, a colour per system; PNG. Unmeasured skills stay empty."""
    systems = list(dict.fromkeys(row.system for row in rows))
    benchmarks = ", ".join(dict.fromkeys(row.benchmark for row in rows))
    with new_figure(2.4 + 0.2 * len(SKILLS) * max(2, len(systems)), benchmarks) as (figure, axes):
        for number, system in enumerate(systems):
            shift = 0.7 * ((number + 0.5) / len(systems) - 0.5)
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot([], [], "o", color=colour, markersize=5, label=system)
            for row in rows:
                skill = row.metric.removesuffix("/success")
                if row.system != system or skill not in SKILLS or row.value is None:
                    continue
                height = SKILLS.index(skill) + shift
                if row.low is not None and row.high is not None:
                    bounds = [row.low, row.high]
                    axes.plot(bounds, [height] * 2, color=colour, linewidth=2, alpha=0.5)
                axes.plot(row.value, height, "o", color=colour, markersize=5)
        axes.set_title("Success by skill", fontsize=10)
        axes.set_xlim(-0.03, 1.03)
        axes.set_yticks(range(len(SKILLS)), SKILLS)
        axes.set_ylim(len(SKILLS) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, colors=INK)
        axes.grid(axis="x")
        if systems:
            figure.legend(loc="outside lower center", ncols=3)
        return figure_png(figure)
