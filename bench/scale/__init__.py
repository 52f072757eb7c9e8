"""A model of the factory: time, money, objects and memory of so many prompts, and what ends first.

`python -m bench.scale` predicts (docs/scale.md). `make bench` has the plan for 10 M prompts.
"""

MEANING = {
    "scale_days_10m": ("days for 10 M prompts on the cluster of the plan in docs/scale.md", ""),
    "scale_efficiency_10m": ("share of them in which its bottleneck works", ""),
}


def measure() -> dict[str, float]:
    """Every number by name."""
    from .inputs import load_costs, load_hardware
    from .prediction import predict

    costs = load_costs()
    plan = load_hardware("cluster-plan", costs)
    found = predict(costs, plan, 10_000_000, 2_000, "packed", samples=0)
    return {"scale_days_10m": found.hours.value / 24, "scale_efficiency_10m": found.efficiency}
