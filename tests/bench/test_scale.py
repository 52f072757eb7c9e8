"""The model of the factory: exact where queues have formulas, and consistent everywhere."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Generator
from random import Random
from typing import Any

import pytest
import simpy
import yaml

from bench.scale.efficiency import bound_seconds, calls_per_prompt, uses
from bench.scale.inputs import (
    COSTS,
    MEASURED,
    Costs,
    Hardware,
    load_costs,
    load_hardware,
    parse_count,
)
from bench.scale.prediction import perturbed, predict
from bench.scale.simulation import Factory, Station
from schemas import DocumentError

NAMES = ("laptop", "node", "cluster", "cluster-plan")


@pytest.fixture(scope="module")
def costs() -> Costs:
    return load_costs()


def served(slots: int | None, arrivals: list[float], seconds: list[float], pace: float = 0.0):
    """Time each piece of work spends in a station, and when the last one leaves."""
    env = simpy.Environment()
    station, spent = Station(env, slots), []

    def work(at: float, takes: float) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(at)
        yield from station.serve(takes, pace)
        spent.append(env.now - at)

    for at, takes in zip(arrivals, seconds, strict=True):
        env.process(work(at, takes))
    env.run()
    return spent, env.now


@pytest.mark.parametrize(("slots", "count"), [(1, 5), (3, 10), (4, 8)])
def test_equal_work_takes_as_many_rounds_as_slots_need(slots, count):
    _, ended = served(slots, [0.0] * count, [2.0] * count)
    assert ended == pytest.approx(2.0 * math.ceil(count / slots))


def test_a_pace_limits_starts():
    _, ended = served(None, [0.0] * 10, [1.0] * 10, pace=0.5)
    assert ended == pytest.approx(9 * 0.5 + 1.0)


@pytest.mark.parametrize(("slots", "load"), [(1, 0.7), (3, 0.8)])
def test_random_arrivals_wait_as_erlang_says(slots, load):
    random, count, service = Random(5), 30_000, 1.0
    rate = load * slots / service
    arrivals, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(rate)
        arrivals.append(now)
    spent, _ = served(slots, arrivals, [random.expovariate(1 / service) for _ in range(count)])
    offered = rate * service
    last = offered**slots / math.factorial(slots) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(slots)) + last)  # Erlang C
    expected = waits * service / (slots * (1 - load)) + service
    assert sum(spent) / count == pytest.approx(expected, rel=0.06)


def deterministic(costs: Costs, **hardware: Any) -> tuple[Costs, Hardware]:
    """No randomness: 4 attempts a prompt, calls of 2 s at a provider, no CPU."""
    data = costs.model_dump()
    data["workloads"]["real"] |= {"attempts_spread": 0.0}
    data["workloads"]["real"]["attempts"]["value"] = 4.0
    number = {"value": 2.0, "unit": "s", "source": "assumption: test"}
    call = {"seconds": number, "cpu_seconds": number | {"value": 0.0}}
    roles = dict.fromkeys(("planner", "generator", "critic", "scorer"), call)
    data["models"]["exact"] = {"roles": roles}
    data["engine"]["run_cpu_seconds"]["value"] = 0.0
    settings: dict[str, Any] = {"cores": 8, "memory_gb": 8, "runs": 1}
    settings |= {"generator_slots": 10, "agent_slots": 10, "servers": {"exact": {"concurrency": 9}}}
    settings |= {"roles": dict.fromkeys(roles, "exact"), "description": "exact"}
    return Costs.model_validate(data), Hardware.model_validate(settings | hardware)


def test_a_shard_of_equal_prompts_takes_what_can_be_counted(costs):
    """9 slots for 18 prompts: two rounds of plans, of each draw and verdict, of each score."""
    exact, hardware = deterministic(costs)
    seen = Factory(exact, hardware, [18]).run()
    assert seen.seconds == pytest.approx(2 * 2 * (1 + 4 * 2 + 4))
    assert seen.calls == {"planner": 18, "generator": 72, "critic": 72, "scorer": 72}


def test_the_bound_is_reached_where_nothing_waits_in_vain(costs):
    exact, hardware = deterministic(costs)
    bound, resource = bound_seconds(uses(exact, hardware, 18))
    assert resource == "concurrent calls of exact"
    assert Factory(exact, hardware, [18] * 3).run().seconds == pytest.approx(bound * 54)


def test_a_rate_limit_is_what_it_says(costs):
    limited = {"exact": {"requests_per_minute": 60}}
    exact, hardware = deterministic(costs, servers=limited)
    calls = sum(calls_per_prompt(exact, hardware, role) for role in hardware.roles)
    bound, resource = bound_seconds(uses(exact, hardware, 18))
    assert (bound, resource) == (pytest.approx(calls), "rate limit of exact")


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_is_finished_and_no_bound_is_beaten(costs, name):
    hardware = load_hardware(name, costs)
    seen = Factory(costs, hardware, [20] * 5 + [7]).run()
    assert seen.prompts == 107
    assert seen.calls["planner"] >= 107
    assert seen.calls["critic"] >= 107
    found = predict(costs, hardware, 107, 20, samples=0)
    # A hundred prompts may need fewer attempts than the average ones of the bound.
    assert 0 < found.efficiency <= 1.15


def test_failed_tries_are_made_again(costs):
    exact, hardware = deterministic(costs, servers={"exact": {"concurrency": 9, "errors": 0.3}})
    seen = Factory(exact, hardware, [100], seed=1).run()
    assert seen.prompts == 100
    assert sum(seen.calls.values()) == pytest.approx(1300 / 0.7, rel=0.05)


def test_more_of_a_resource_never_takes_longer(costs):
    hardware = load_hardware("node", costs)
    server = hardware.servers["flux2-klein-9b"]
    hours = []
    for gpus in (2, 8):
        servers = hardware.servers | {"flux2-klein-9b": server.model_copy(update={"gpus": gpus})}
        changed = hardware.model_copy(update={"servers": servers})
        hours.append(predict(costs, changed, 500, 50, samples=0).hours.value)
    assert hours == sorted(hours, reverse=True)
    assert hours[0] > 1.2 * hours[-1]


def test_larger_shards_and_packs_leave_fewer_objects_and_the_same_bytes(costs):
    hardware = load_hardware("cluster", costs)
    small = predict(costs, hardware, 1_000_000, 100, "single", samples=0, efficiency=1.0)
    large = predict(costs, hardware, 1_000_000, 2_000, "packed", samples=0, efficiency=1.0)
    assert large.objects < small.objects / 1_000
    assert large.gigabytes == pytest.approx(small.gigabytes)
    [partitions] = [limit for limit in large.limits if "partitions" in limit.name]
    assert partitions.prompts == pytest.approx(100_000 * 2_000)


def test_money_is_calls_times_price(costs):
    hardware = load_hardware("node", costs)
    [scores] = [
        s
        for s in predict(costs, hardware, 1_000, 100, samples=0, efficiency=1.0).stages
        if s.stage == "scores"
    ]
    tokens = costs.models["gemini-2.5-pro"].roles["scorer"]
    usd = tokens.input_tokens.value * 1.25e-6 + tokens.output_tokens.value * 10e-6
    assert scores.usd == pytest.approx(1_000 * 9 * 2 * usd)


def test_the_same_seed_gives_the_same_prediction(costs):
    hardware = load_hardware("node", costs)
    one, again, other = (predict(costs, hardware, 200, 50, seed=s, samples=8) for s in (1, 1, 2))
    assert one == again != other
    assert one.hours.low < one.hours.value < one.hours.high


def test_errors_of_costs_are_unbiased(costs):
    random = Random(0)
    drawn = [perturbed(costs, random).workloads["real"].attempts.value for _ in range(300)]
    assert sum(drawn) / len(drawn) == pytest.approx(9, rel=0.03)


def test_costs_without_a_source_are_refused(tmp_path):
    path = tmp_path / "costs.yaml"
    data = yaml.safe_load(COSTS.read_text("utf-8"))
    data["storage"]["put_seconds"]["source"] = "I think"
    path.write_text(yaml.safe_dump(data), "utf-8")
    with pytest.raises(DocumentError, match=re.escape("storage.put_seconds.source")):
        load_costs(path)


def test_numbers_of_prompts():
    known = {"250": 250, "10k": 10_000, "2.5M": 2_500_000, "10M": 10_000_000}
    assert {text: parse_count(text) for text in known} == known
    with pytest.raises(ValueError, match="not a number of prompts"):
        parse_count("many")


def test_measured_costs_replace_those_of_the_file(tmp_path, costs):
    path = tmp_path / "measured.yaml"
    quantity = {"value": 7.0, "unit": "s", "source": "measured: test"}
    measured = yaml.safe_load(MEASURED.read_text("utf-8"))
    measured["engine"]["run_seconds"] = quantity
    path.write_text(yaml.safe_dump(measured), "utf-8")
    found = load_costs(COSTS, path)
    assert found.engine.run_seconds.value == 7.0
    assert found.models["gemini-2.5-pro"] == costs.models["gemini-2.5-pro"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.scale", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_the_command_prints_stages_and_limits():
    done = command("--prompts", "1k", "--hardware", "laptop.yaml", "--samples", "20")
    assert done.returncode == 0, done.stderr
    for words in ("1,000 prompts", "scores", "curation", "first limit reached", "partitions"):
        assert words in done.stdout
    done = command("--hardware", "moon")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert "no hardware moon: give a file, or one of cluster" in done.stdout
