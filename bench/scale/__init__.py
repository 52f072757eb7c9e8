"""A model of the factory: time, money, objects and memory of so many prompts, and what ends first.

`python -m bench.scale` predicts, `bench.scale.calibrate` measures costs here, `bench.scale.check`
compares predictions with real runs (docs/scale.md). `make bench` has a small part of it.
"""

MEANING = {
    "scale_cpu_error": (
        "CPU of a run over 4 shards of 20 prompts by the model of bench/scale, whose costs are "
        "measured with 20 prompts, relative to the real run's; minus 1",
        "",
    ),
    "scale_days_10m": ("days for 10 M prompts on the cluster of the plan in docs/scale.md", ""),
    "scale_efficiency_10m": ("share of them in which its bottleneck works", ""),
}

_SHARDS, _SHARD_SIZE = 4, 20


def measure() -> dict[str, float]:
    """Every number by name."""
    import tempfile
    from pathlib import Path

    from .check import check, error
    from .inputs import load_costs, load_hardware
    from .prediction import predict

    with tempfile.TemporaryDirectory() as folder:
        (real,) = check(Path(folder), [_SHARDS], _SHARD_SIZE, jobs=2, latency=0.0)
    costs = load_costs()
    plan = load_hardware("cluster-plan", costs)
    found = predict(costs, plan, 10_000_000, 2_000, "packed", samples=0)
    return {
        "scale_cpu_error": error(real.cpu),
        "scale_days_10m": found.hours.value / 24,
        "scale_efficiency_10m": found.efficiency,
    }
