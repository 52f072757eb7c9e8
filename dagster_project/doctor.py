"""The checks of `interleave doctor`: packages, keys, endpoints, weights and GPUs of a profile."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from rich.console import Console

from assets.core.profile import PostgresSettings, Profile, load_profile
from inference.agent_prompts.templates import SUFFIX, version_of
from inference.backends.backend import Finding
from inference.backends.checkpoint.backend import CheckpointBackend
from inference.backends.diffusers.backend import check_pipeline
from inference.backends.model_files import cached_file, download_command
from inference.backends.providers.api import ApiSettings
from inference.backends.providers.settings import EndpointSettings, RemoteModel
from inference.environments import (
    Purpose,
    driver_cuda,
    environment_of,
    gpu_bytes,
    gpus,
    pinned_cuda,
)
from inference.servers.ray_jobs import gpus_of_nodes
from inference.servers.settings import AgentServer, ImageServer
from inference.servers.vllm import missing_compilers
from schemas import FoundryError
from training.base_model import BaseModelSettings
from training.gpu_assignment import server_problem
from training.stage_needs import StageNeeds, disk_needed, needs_text, stage_needs
from warehouse import Home

_TIMEOUT_SECONDS = 5.0
_DISK_GB = 5.0  # of tables and pictures of a first size


def diagnose(profile_name: str, home: Home) -> list[Finding]:
    """Check everything that a profile needs; FoundryError: it is missing or invalid."""
    profile = load_profile(profile_name)
    return [
        *_home(home, profile),
        *_members(profile),
        *_providers(profile),
        *_backends(profile, home),
        *_training(profile),
        *_servers(profile),
        *_cluster(profile, home),
        *_notifications(profile),
    ]


def report(profile_name: str, root: str) -> bool:
    """Print the findings; whether all of them are ok."""
    console = Console(highlight=False, soft_wrap=True)
    findings = diagnose(profile_name, Home(root))
    for finding in findings:
        mark = "[red]missing[/red]" if finding.fix else "[green]ok[/green]     "
        console.print(f"{mark} {finding.what}")
        if finding.fix:
            console.print(f"        [bold]{finding.fix}[/bold]")
    missing = sum(finding.fix is not None for finding in findings)
    verdict = f"{missing} of {len(findings)} missing" if missing else "complete"
    console.print(f"\nprofile {profile_name}: {verdict}")
    return not missing


def _home(home: Home, profile: Profile) -> Iterator[Finding]:
    folder = home.local
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        yield Finding(f"home {folder}", "it is not writable: choose another one with --home")
    needs = stage_needs(profile.servers, profile.training)
    free = shutil.disk_usage(folder).free / 1e9
    needed = _DISK_GB + disk_needed(profile.training, needs) / 1e9
    largest = max(needs, key=lambda need: need.working_disk or 0.0)
    most = largest.working_disk or 0.0
    cause = f", {most / 1e9:,.0f} of them for checkpoints of {largest.stage}" if most > 1e9 else ""
    fix = f"free {needed:,.0f} GB, or choose another home" if free < needed else None
    yield Finding(f"disk: {free:,.0f} GB free of {needed:,.0f} GB needed{cause}", fix)
    on_ray = profile.cluster and profile.cluster.ray
    for need in needs:
        if need.host != 0.0:
            problem = None if on_ray else _memory_problem(profile, need)
            yield Finding(f"{need.stage} takes {needs_text(need)}", problem)


def _memory_problem(profile: Profile, need: StageNeeds) -> str | None:
    """What to change where this machine has less memory than a stage takes; None: it is enough, or
    not known."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (need.host or 0.0) > here:
        return f"this machine has {here / 1e9:,.0f} GB of memory: take a larger one"
    server = profile.servers.get(need.stage.removeprefix("server "))
    share = gpu_bytes() * (server.memory if server else 1.0)
    if need.gpus and share and (need.gpu or 0.0) > share:
        return (
            f"it has {share / 1e9:,.0f} GB of a GPU here: give it more GPUs, a larger share of "
            "their memory, or train adapters (`recipe: lora`, `lora_rank`)"
        )
    return None


def _members(profile: Profile) -> Iterator[Finding]:
    if profile.roles.scorer == "ensemble" and profile.ensemble:
        yield Finding(f"ensemble of scorers: {_weights(profile.ensemble.members)}")
    if isinstance(mix := profile.roles.generator, dict):
        requests = f"users' requests and evaluations by {profile.roles.generators[0]}"
        yield Finding(f"prompts are drawn by {_weights(mix)}, {requests}")


def _weights(members: Mapping[Any, float]) -> str:
    return ", ".join(f"{name} (weight {weight:g})" for name, weight in members.items())


def _providers(profile: Profile) -> Iterator[Finding]:
    for name, settings in profile.apis.items():
        roles: Sequence[str] = profile.bound.get(name, [])
        models = {role: getattr(settings, role, None) for role in roles}
        if name in profile.generators:
            own = {path: m for path, role, m in settings.models() if role == "generator"}
            models |= {"generator": None} | own
        models |= {role: model for _, role, api, model in profile.side_models if api == name}
        if models:
            yield _package(settings.package, "setup")
        for role, model in models.items():
            yield _model(profile, name, role, model)
            yield from _prompt_files(role, getattr(model, "agent_prompts", {}))
        endpoints = [one for model in models.values() for one in settings.endpoints_of(model)]
        for endpoint in dict.fromkeys(endpoints):
            if not endpoint.server:  # those are started by the first call
                yield from _endpoint(settings, endpoint)


def _package(name: str, target: str) -> Finding:
    try:
        return Finding(f"package {name} {version(name)}")
    except PackageNotFoundError:
        return Finding(f"package {name}", f"run `make {target}`, which installs what is pinned")


def _model(profile: Profile, backend: str, role: str, model: RemoteModel | None) -> Finding:
    if model is None:
        return Finding(f"{role} of backend {backend}", f"name a model at `{backend}.{role}`")
    unpriced = profile.budget is not None and model.model not in profile.prices
    fix = f"the profile has a budget: add `prices.{model.model}`" if unpriced else None
    return Finding(f"{role}: {model.model} at {backend}", fix)


def _prompt_files(role: str, prompts: Mapping[str, str]) -> Iterator[Finding]:
    for prompt in prompts.values():
        if prompt.endswith(SUFFIX):
            yield Finding.resolved(f"{role}'s agent prompt {prompt}", partial(version_of, prompt))


def _endpoint(backend: ApiSettings, endpoint: EndpointSettings) -> Iterator[Finding]:
    key = None
    if endpoint.key:
        try:
            key = endpoint.secret()
            yield Finding(f"key {endpoint.key}")
        except FoundryError:
            yield Finding(f"key {endpoint.key}", f"put it in: export {endpoint.key}=...")
    health = backend.health(endpoint, key, _TIMEOUT_SECONDS)
    title = f"{health.url} answers" if health.is_reachable else health.url
    yield Finding(title, health.problem)


def _backends(profile: Profile, home: Home) -> Iterator[Finding]:
    """What the backends in use need, and the pipelines of servers."""
    for name in dict.fromkeys((*profile.bound, *profile.generators)):
        if section := profile.section_of(name):
            yield from section.check(profile, home)
    servers = [one for one in profile.servers.values() if isinstance(one, ImageServer)]
    if servers:
        yield _package("ray", "cluster")
    yield from (check_pipeline(server.pipeline) for server in servers if server.pipeline)
    for name, file in profile.section(CheckpointBackend).agent_prompts.items():
        role = name.partition("_")[0]
        if getattr(profile.roles, role) == "checkpoint":
            yield from _prompt_files(role, {name: file})


def _training(profile: Profile) -> Iterator[Finding]:
    if profile.training:
        yield _base_model(profile.training.base_model)


def _servers(profile: Profile) -> Iterator[Finding]:
    """What takes this machine's GPUs, or those of a Ray cluster."""
    if profile.servers and profile.cluster and profile.cluster.ray:
        yield from _servers_on_ray(profile, profile.cluster.ray.address)
        return
    for name, server in profile.servers.items():
        where = f"GPUs {', '.join(map(str, server.gpus))}" if server.gpus else "the CPU"
        what = f"server {name}: {server.title} on {where}, started by the first call"
        yield Finding(what, server_problem(server, gpus(), gpu_bytes()))
    if any(isinstance(one, AgentServer) and one.gpus for one in profile.servers.values()):
        yield _sampler()
    if profile.training and profile.training.launcher.kind == "local":
        assignment = profile.gpu_assignment
        if needed := max(count for _, _, count in assignment.trainings()):
            what = f"GPUs: {gpus()} of {needed} for training"
            yield Finding(what, assignment.training_problem(gpus()))
    yield from _driver()


def _sampler() -> Finding:
    """Of vLLM: FlashInfer's, which is compiled when it starts, or its own."""
    missing = missing_compilers(environment_of("agents", "gpu") / "bin" / "python")
    if missing:
        return Finding(f"vLLM samples by itself: FlashInfer needs {' and '.join(missing)}")
    return Finding("vLLM samples by FlashInfer, compiled by ninja and nvcc when it first starts")


def _driver() -> Iterator[Finding]:
    """Whether the NVIDIA driver is new enough for the environments; that there is no GPU is said
    elsewhere."""
    if not gpus():
        return
    purposes: tuple[Purpose, ...] = ("sft", "rl", "agents")
    needed, found = max(map(pinned_cuda, purposes)), driver_cuda()
    version_here = f"{found[0]}.{found[1]}" if found else "unknown"
    what = f"NVIDIA driver: CUDA {version_here}, {needed}.0 or newer needed"
    is_new_enough = found and found[0] >= needed
    yield Finding(what, None if is_new_enough else "install a driver of series 580 or newer")


def _servers_on_ray(profile: Profile, address: str) -> Iterator[Finding]:
    fix = None if os.environ.get("INTERLEAVE_LOCAL") else "set it to a folder that all nodes share"
    yield Finding("INTERLEAVE_LOCAL: where servers and their users find each other", fix)
    nodes = gpus_of_nodes(address)
    if nodes is None:
        return  # that there is no job server is said elsewhere
    largest, total = max(nodes, default=0), sum(nodes)
    for name, server in profile.servers.items():
        count = len(server.gpus)
        where = f"{count} GPUs of a node" if count else "the CPU of Ray's head"
        fix = f"no node has more than {largest:g}: lower its `gpus`" if count > largest else None
        yield Finding(f"server {name}: {server.title} on {where}, started by the first call", fix)
    needed = profile.gpu_assignment.needed_gpus()
    fix = "add nodes, or lower `gpus` of servers or trainings" if needed > total else None
    yield Finding(f"GPUs of the Ray cluster: {total:g} of {needed:g} needed at a time", fix)


def _cluster(profile: Profile, home: Home) -> Iterator[Finding]:
    cluster = profile.cluster
    if cluster is None:
        return
    shared = None if not home.storage.is_local else "choose one that all nodes see, as s3://..."
    yield Finding(f"home of all nodes: {home.root}", shared)
    if cluster.ray:
        yield (package := _package("dagster-ray", "cluster"))
        if not package.fix:
            yield _ray(cluster.ray.address)
    if cluster.postgres:
        yield (package := _package("dagster-postgres", "cluster"))
        if not package.fix:
            yield _postgres(cluster.postgres)


def _notifications(profile: Profile) -> Iterator[Finding]:
    if (settings := profile.notifications) is None:
        return
    password = settings.mail.password if settings.mail else None
    for variable in filter(None, (settings.webhook, password)):
        fix = None if os.environ.get(variable) else f"set the environment variable {variable}"
        yield Finding(f"notifications: {variable}", fix)


def _ray(address: str) -> Finding:
    try:
        with urlopen(f"{address.rstrip('/')}/api/version", timeout=_TIMEOUT_SECONDS) as answer:
            there = json.load(answer)["ray_version"]
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "reason", error)
        fix = f"no job server ({reason}): `ray start --head`, or correct `cluster.ray.address`"
        return Finding(f"Ray at {address}", fix)
    here = version("ray")
    other = f"here it is {here}: install the same on all nodes" if here != there else None
    return Finding(f"Ray {there} at {address}", other)


def _postgres(settings: PostgresSettings) -> Finding:
    from .instance import check_postgres

    what = f"Postgres at {settings.host}:{settings.port}"
    try:
        check_postgres(settings)
    except FoundryError as error:
        return Finding(what, str(error))
    return Finding(f"{what} answers")


def _base_model(settings: BaseModelSettings) -> Finding:
    if settings.source != "huggingface":
        return Finding(f"base model: {settings.source}")
    what = f"base model: {settings.model} at {settings.revision}"
    if settings.model and Path(settings.model).is_dir():
        return Finding(what)
    if cached_file(settings.model or "", settings.revision, "config.json"):
        return Finding(f"{what}, downloaded")
    token = "HF_TOKEN is set" if os.environ.get("HF_TOKEN") else "a gated model needs HF_TOKEN"
    command = download_command(settings.model or "", settings.revision)
    return Finding(what, f"not downloaded yet: {command} ({token})")
