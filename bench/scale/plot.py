"""The plot of docs/scale.md: days by number of prompts, and how far each limit is used."""

import math
from pathlib import Path
from typing import Any

from .efficiency import is_steady
from .inputs import Costs, Images, load_hardware
from .prediction import Prediction, predict

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
# Hardware, shard size, images, label.
SYSTEMS: tuple[tuple[str, int, Images, str], ...] = (
    ("node", 100, "single", "one node, shards of 100"),
    ("cluster", 100, "single", "cluster as it is, shards of 100"),
    ("cluster-plan", 2_000, "packed", "cluster by the plan, shards of 2,000"),
)


def save_plot(path: Path, costs: Costs, seed: int = 0) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, *others = figure.subplots(1, 3, width_ratios=(1.1, 1, 1))
    for system in SYSTEMS:
        found = _predictions(costs, system, seed)
        left.plot(SIZES, [each.hours.value / 24 for each in found], marker="o", label=system[3])
        bounds = ([each.hours.low / 24 for each in found], [each.hours.high / 24 for each in found])
        left.fill_between(SIZES, *bounds, alpha=0.2)
        if system is not SYSTEMS[0]:
            _limits(others[SYSTEMS.index(system) - 1], found[-1], system[3])
    left.axhline(30, color="grey", linestyle=":", linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="prompts", title="Days (90 % interval)")
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _predictions(costs: Costs, system: tuple[str, int, Images, str], seed: int) -> list[Prediction]:
    name, shard_size, images, _ = system
    hardware = load_hardware(name, costs)
    most = predict(costs, hardware, SIZES[-1], shard_size, images, seed)

    def predicted(prompts: int) -> Prediction:
        steady = is_steady(hardware, prompts, shard_size)
        known = most.efficiency if steady else None
        return predict(costs, hardware, prompts, shard_size, images, seed, efficiency=known)

    return [*map(predicted, SIZES[:-1]), most]


def _limits(axes: Any, prediction: Prediction, title: str) -> None:
    """How much of each limit 10 M prompts use; beyond 100 % it is broken."""
    limits = [limit for limit in prediction.limits if 0 < limit.prompts < math.inf]
    shares = [100 * prediction.prompts / limit.prompts for limit in limits]
    names = [limit.name.replace("Dagster's ", "") for limit in limits]
    colours = ["tab:red" if share > 100 else "tab:green" for share in shares]
    axes.barh(names, shares, color=colours)
    axes.invert_yaxis()
    axes.axvline(100, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="% of the limit")
    axes.set_title(f"10 M prompts:\n{title}", fontsize=9)
    axes.tick_params(axis="y", labelsize=7)
