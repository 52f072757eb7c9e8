"""What the engine and `interleave run` cost beside a script on the same SDK that keeps no journal.

All make the same calls of one server in a process of its own, which draws `SLOTS` images at once
and rejects every eighth. They take turns, each in a process and a home of its own.
"""

import asyncio
import base64
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

import yaml
from aiohttp import web
from PIL import Image

from assets.core.foundry import FoundryResource
from inference.agent_prompts.templates import critic_prompt, planner_prompt
from inference.backends.providers.structured import PlanAnswer, VerdictAnswer
from inference.shard import plan_shard, run_shard
from schemas.prompts import PROMPTS
from warehouse import EncodedImage

from .peer_script import Script
from .providers import completion, running, serve_routes

REQUESTS, STEPS, SIZE, REPEATS = 200, 4, (256, 256), 3
AGENT_SECONDS, IMAGE_SECONDS, SLOTS, SLOW = {"planner": 0.15, "critic": 0.05}, 0.15, 8, 7
LIMITS = {"generator": 12, "agents": 32}

_CPU, _SHARE = "CPU milliseconds of a call", f"share of the ideal, {SLOTS} images at once"
_WHAT = f"{REQUESTS} requests of {STEPS} steps; planner and generator take 150 ms, the critic 50"
MEANING = {
    "peers_script_cpu_ms": (f"{_CPU} of a script on OpenAI's SDK that keeps nothing: {_WHAT}", ""),
    "peers_engine_cpu_ms": (f"{_CPU} of `plan_shard` and `run_shard`", ""),
    "peers_run_cpu_ms": (f"{_CPU} of `interleave run --select plans,trajectories`, all of it", ""),
    "peers_engine_cpu_ratio": ("CPU of the engine, relative to the script's", "<= 1.27"),
    "peers_engine_wall_ratio": ("time of the engine, relative to the script's", "<= 1.15"),
    "peers_run_wall_ratio": ("time of `interleave run`, relative to the script's", ""),
    "peers_script_share": (f"{_SHARE}, script", ""),
    "peers_engine_share": (f"{_SHARE}, engine", ""),
    "peers_script_share_slow": (f"{_SHARE}, script, latencies times {SLOW}", ""),
    "peers_engine_share_slow": (f"{_SHARE}, engine, latencies times {SLOW}", ">= 0.95"),
}
_PROFILE = {
    "name": "peers",
    "description": "A stub server",
    "roles": {"planner": "openai", "critic": "openai", "generator": "images", "scorer": "sketch"},
    "pack": "sketchbook",
    "sizes": {"demo": 1},
    "bank": {"shard_size": REQUESTS},
    "limits": LIMITS,
}


class Cost(NamedTuple):
    """What a peer needed for all requests: seconds, CPU seconds, calls, and images among them."""

    seconds: float
    cpu: float
    calls: int
    images: int

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu / self.calls


def measure() -> dict[str, float]:
    """Every number by name: medians over the repeats, ratios of one repeat each."""
    costs = measure_peers(1, ("script", "engine", "run"), REPEATS)
    values = {f"peers_{name}_cpu_ms": median(c.cpu_ms for c in costs[name]) for name in costs}
    values["peers_engine_cpu_ratio"] = _ratio(costs, "engine", lambda cost: cost.cpu_ms)
    for name in ("engine", "run"):
        values[f"peers_{name}_wall_ratio"] = _ratio(costs, name, lambda cost: cost.seconds)
    for name in ("script", "engine"):
        values[f"peers_{name}_share"] = _share(costs[name], 1)
    for name, slow in measure_peers(SLOW, ("script", "engine"), 1).items():
        values[f"peers_{name}_share_slow"] = _share(slow, SLOW)
    return values


def _ratio(costs: dict[str, list[Cost]], name: str, value: Callable[[Cost], float]) -> float:
    pairs = zip(costs[name], costs["script"], strict=True)
    return median(value(ours) / value(theirs) for ours, theirs in pairs)


def _share(costs: list[Cost], factor: int) -> float:
    """Of the time taken, that in which the server could have drawn the images."""
    ideal = IMAGE_SECONDS * factor / SLOTS
    return median(cost.images * ideal / cost.seconds for cost in costs)


def measure_peers(factor: int, peers: tuple[str, ...], repeats: int) -> dict[str, list[Cost]]:
    """The costs of each peer. `factor`: of the server's latencies."""
    costs: dict[str, list[Cost]] = {name: [] for name in peers}
    with tempfile.TemporaryDirectory() as name, running(_serve, factor) as url:
        folder = Path(name)
        profile, prompts = _write_profile(folder, url), folder / "prompts"
        _interleave(prompts, profile, "+prompts")
        for peer in peers * repeats:
            home = shutil.copytree(prompts, folder / f"{peer}-{len(costs[peer])}")
            command = [sys.executable, "-m", "bench.peers", peer, str(home), str(profile), url]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            costs[peer].append(Cost(*json.loads(done.stdout.splitlines()[-1])))
    return costs


def _write_profile(folder: Path, url: str) -> Path:
    shared = {"endpoints": [{"url": f"{url}/v1", "concurrency": max(LIMITS.values())}]}
    openai = shared | {role: {"model": role} for role in AGENT_SECONDS}
    images = shared | {"generator": {"model": "generator"}}
    path = folder / "peers.yaml"
    path.write_text(yaml.safe_dump(_PROFILE | {"openai": openai, "images": images}))
    return path


def _interleave(home: Path, profile: Path, select: str) -> None:
    chosen = ["--profile", str(profile), "--home", str(home), "--select", select]
    command = [sys.executable, "-m", "dagster_project.cli.app", "run", *chosen]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def main(peer: str, home: Path, profile: Path, url: str) -> None:
    """Let a peer work, and print its `Cost`."""
    foundry = FoundryResource(profile=str(profile), root=str(home))
    works: dict[str, Callable[[], object]] = {
        "script": lambda: asyncio.run(_script(foundry, url)),
        "engine": lambda: _engine(foundry),
        "run": lambda: _interleave(home, profile, "plans,trajectories"),
    }
    before, started, cpu = _counts(url), time.perf_counter(), _cpu()
    works[peer]()
    cost = time.perf_counter() - started, _cpu() - cpu, *_counts(url)
    print(json.dumps([now - then for now, then in zip(cost, (0, 0, *before), strict=True)]))


def _counts(url: str) -> list[int]:
    """Calls that the server has answered, and images among them."""
    with urlopen(f"{url}/counts") as answer:
        return json.loads(answer.read())


def _cpu() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def _engine(foundry: FoundryResource) -> None:
    (shard,) = foundry.home.lake.partitions(PROMPTS)
    given, settings = (foundry.roles, foundry.home), foundry.settings
    prompts, rules = foundry.prompts_of(shard), (settings.loop, settings.limits)
    planned = asyncio.run(plan_shard(prompts, *given, *rules, begin_loops=True))
    run = asyncio.run(run_shard(prompts, planned.plans, *given, shard, *rules))
    assert not (planned.quarantine or run.quarantine)


async def _script(foundry: FoundryResource, url: str) -> None:
    """Texts and forms of its answers are as long as ours."""
    (shard,) = foundry.home.lake.partitions(PROMPTS)
    texts = {"planner": planner_prompt("").text, "critic": critic_prompt("", "").text}
    formats = {}
    for role, form in (("planner", PlanAnswer), ("critic", VerdictAnswer)):
        schema = {"name": "answer", "schema": form.model_json_schema()}
        formats[role] = {"type": "json_schema", "json_schema": schema}
    folder = Path(foundry.root, "script")
    folder.mkdir()
    script = Script(folder, [*LIMITS.values()], texts, formats, EncodedImage.white(SIZE).data)
    await script.run(f"{url}/v1", [prompt.text for prompt in foundry.prompts_of(shard)])


def _serve(port: Connection, factor: int) -> None:
    """The second step of plan 4 is drawn for prompts with `request 0004, part 2`."""
    calls, images, plans, slots = 0, 0, 0, asyncio.Semaphore(SLOTS)
    part = re.compile(rb"request (\d{4}), part (\d)(, exactly)?")
    noise = Image.effect_noise((32, 32), 64).resize(SIZE)
    png = EncodedImage.of(noise).data  # whose readers ignore what follows
    pixels = base64.b64encode(png + b" " * (-len(png) % 3)).decode()

    async def count(request: web.Request) -> web.Response:
        return web.json_response([calls, images])

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "generator", "owned_by": "vllm"}]})

    async def answer(request: web.Request) -> web.Response:
        nonlocal calls, plans
        found = part.findall(await request.read())
        await asyncio.sleep(AGENT_SECONDS["critic" if found else "planner"] * factor)
        calls, plans = calls + 1, plans + (not found)
        content = _verdict(*found[-1]) if found else _plan(plans % REQUESTS)
        return web.Response(body=completion(content), content_type="application/json")

    async def draw(request: web.Request) -> web.Response:
        nonlocal calls, images
        match = part.search(await request.read())
        async with slots:
            await asyncio.sleep(IMAGE_SECONDS * factor)
        calls, images = calls + 1, images + 1
        text = pixels + base64.b64encode(b"%-30s" % (match or [b""])[0]).decode()
        return web.json_response({"data": [{"b64_json": text}]})

    gets = [web.get("/counts", count), web.get("/v1/models", models)]
    draws = [web.post(f"/v1/images/{name}", draw) for name in ("generations", "edits")]
    serve_routes(port, [*gets, *draws, web.post("/v1/chat/completions", answer)])


def _plan(number: int) -> dict[str, Any]:
    texts = {"step_name": "part", "instruction": "Draw the next part", "auxiliary_text": None}
    prompt = f"A picture of request {number:04d}, part "
    steps = [{"step_number": n, "prompt": f"{prompt}{n}", **texts} for n in range(1, STEPS + 1)]
    return {"reasoning": "One part after the other.", "execution_plan": steps}


def _verdict(number: bytes, step: bytes, exactly: bytes) -> dict[str, Any]:
    fine = bool(exactly) or (int(number) * STEPS + int(step)) % 8 > 0
    again = f"A picture of request {number.decode()}, part {step.decode()}, exactly"
    refined = "" if fine else again
    return {"reasoning": "Seen.", "previous_step_success": fine, "refine_prompt": refined}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
