"""Draws of a step against the image that it ends with, over the strictness of a judge."""

from collections.abc import Sequence

from ...core.plotting import ACCENT, BAD, GOOD, INK, OTHER, PALE, figure_png, new_figure
from .policies import STRICTNESS, PolicyResult

_COLOURS = (INK, BAD, GOOD, ACCENT)
_LABELLED = 4  # every so many strictnesses have their number


def strictness_plot(curve: Sequence[PolicyResult], points: Sequence[PolicyResult]) -> bytes:
    """PNG: `curve` has a result for each of `STRICTNESS`, `points` are judges beside it.

    Left: what they cost and gain. Right: the share of steps that they leave open, whose cost is a
    lower bound.
    """
    with new_figure(4.2, "What another strictness would have cost", columns=2) as (figure, axes):
        gain, left_open = axes
        known = [(each.draws.mean, each.final.mean) for each in curve if each.final]
        gain.plot(*zip(*known, strict=True), "-o", color=OTHER, markersize=3, label="by grade")
        for number, (x, y) in list(enumerate(known))[::_LABELLED]:
            gain.annotate(f"{STRICTNESS[number]:g}", (x, y), (4, -10), textcoords="offset points")
        for colour, point in zip(_COLOURS, points, strict=False):
            if point.final:
                error = [
                    [point.final.mean - point.final.low],
                    [point.final.high - point.final.mean],
                ]
                gain.errorbar(
                    point.draws.mean,
                    point.final.mean,
                    error,
                    fmt="D",
                    color=colour,
                    label=point.name,
                )
        gain.set_xlabel("draws per step")
        gain.set_ylabel("score of the final image")
        gain.set_title("By strictness of a scorer", fontsize=10)
        figure.legend(loc="outside lower left", fontsize=8)
        left_open.plot(STRICTNESS, [each.open_steps.mean for each in curve], color=PALE)
        left_open.set_xlabel("accepted from this grade on")
        left_open.set_title("Steps that would need more draws", fontsize=10)
        left_open.set_ylim(-0.02, 1.02)
        return figure_png(figure)
