"""GPU memory, main memory and disk that each stage of a profile takes: servers and trainings.

Formulas are in `training/model_size.py`; what is assumed besides is below. A training's checkpoints
are removed once its model is published.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from inference.backends.diffusers.backend import DiffusersSettings, select_model
from inference.backends.model_files import cached_file, weights_bytes
from inference.environments import COMPLETE, Hardware, Purpose, environment_of
from inference.servers.settings import AgentServer, ImageServer, Server
from schemas import FoundryError

from .base_model import PACKAGED_MODEL
from .grpo.recipe import GrpoSettings
from .model_size import (
    GRPO_CHECKPOINT_BYTES,
    KNOWN_SIZES,
    SFT_CHECKPOINT_BYTES,
    TRAINED_BYTES,
    ModelSize,
    picture_seconds,
)
from .settings import TrainingSettings
from .sft.recipe import SftRecipe, SftSettings, read_recipe

Servers = Mapping[str, Server]
_GB = 1e9
# Parameters of a pipeline's part that denoises, and of all others, by id at Hugging Face.
_PIPELINES = {
    "Qwen/Qwen-Image": (20.4e9, 8.4e9),
    "Qwen/Qwen-Image-Edit": (20.4e9, 8.4e9),
    "Qwen/Qwen-Image-Edit-2511": (20.4e9, 8.4e9),
    "black-forest-labs/FLUX.1-Krea-dev": (11.9e9, 5.0e9),
    "black-forest-labs/FLUX.1-Kontext-dev": (11.9e9, 5.0e9),
    "black-forest-labs/FLUX.1-Fill-dev": (11.9e9, 5.0e9),
    "meituan-longcat/LongCat-Image-Edit": (6.3e9, 8.4e9),
    "black-forest-labs/FLUX.2-klein-9B": (9.1e9, 8.3e9),
    "black-forest-labs/FLUX.2-klein-9b-kv": (9.1e9, 8.3e9),
    "Qwen/Qwen-Image-2.1": (7.1e9, 9.1e9),
}
_PIXELS_A_TOKEN = 16**2  # of pipelines
_PROMPT_TOKENS = 512
_TEXT_TOKENS = {"planner_sft": 3300, "critic_sft": 1500, "planner_rl": 3300, "critic_rl": 1500}
_CRITIC_IMAGES, _AGENT_PIXELS_A_TOKEN = 2, 32**2
_SERVED_TOKENS = 32_768  # of a question and its answer, as vLLM is started
# Assumed bytes: a GPU's libraries and buffers; a process with its libraries, data loaders and a
# part of the weights on their way to a GPU; the values of an image while it is drawn.
_GPU_EXTRA, _PROCESS, _IMAGE = 3 * _GB, 8 * _GB, 2 * _GB
_CPU_PROCESS: dict[Purpose, float] = {"sft": 1.5 * _GB, "rl": 4.5 * _GB, "agents": 3 * _GB}
_ENVIRONMENTS: dict[Hardware, dict[Purpose, float]] = {
    "gpu": {"sft": 8 * _GB, "rl": 12 * _GB, "agents": 12 * _GB},  # assumed
    "cpu": {"sft": 1.1 * _GB, "rl": 2.0 * _GB, "agents": 3.0 * _GB},
}
_GRPO_CHECKPOINTS = 2  # that verl keeps, besides the one it writes


@dataclass(frozen=True)
class StageNeeds:
    """What a stage takes while it runs, in bytes; None: it is not known before its download.

    Args:
        gpus: 0: it runs on the CPU.
        gpu: of each of its GPUs.
        working_disk: until the stage is finished.
        disk: for good.
    """

    stage: str
    gpus: int = 0
    gpu: float | None = 0.0
    host: float | None = 0.0
    working_disk: float | None = 0.0
    disk: float | None = 0.0


def stage_needs(servers: Servers, training: TrainingSettings | None) -> list[StageNeeds]:
    """Servers, trainings, and what is installed and downloaded first."""
    size = base_size(training)
    needs = [_server_needs(name, server, size) for name, server in servers.items()]
    if training:
        needs.append(_sft_needs("planner_sft", training.planner_sft, size))
        needs.append(_sft_needs("critic_sft", training.critic_sft, size))
        needs += [_grpo_needs(name, rl, size) for name, rl in training.reinforcements.items()]
    environments = sum(
        _ENVIRONMENTS[where][purpose] for purpose, where in _to_install(servers, training)
    )
    return [
        *needs,
        StageNeeds("environments to install", disk=environments),
        StageNeeds("weights to download", disk=_downloads(servers, training)),
    ]


def disk_needed(training: TrainingSettings | None, needs: list[StageNeeds]) -> float:
    """Bytes of disk at most at a time, as far as they are known.

    Trainings are one after the other, the two of SFT side by side where the profile says so.
    """
    working = {need.stage: need.working_disk or 0.0 for need in needs}
    if training and training.side_by_side:
        working["both"] = working["planner_sft"] + working["critic_sft"]
    return sum(need.disk or 0.0 for need in needs) + max(working.values())


def needs_text(need: StageNeeds) -> str:
    """Such as `36 GB of each of 8 GPUs, 64 GB of memory, 386 GB of disk`."""
    on_gpus = f"each of {need.gpus} GPUs" if need.gpus > 1 else "a GPU"
    disk = None if need.disk is None else need.disk + (need.working_disk or 0.0)
    amounts = [(need.gpu, on_gpus)] * (need.gpus > 0) + [(need.host, "memory"), (disk, "disk")]
    known = [f"{gigabytes(amount)} of {of}" for amount, of in amounts if amount]
    unknown = [of for amount, of in amounts if amount is None]
    return ", ".join([*known, *(f"unknown: {of}" for of in unknown)])


def gigabytes(amount: float | None) -> str:
    """Such as `36 GB`, or `0.3 GB`."""
    if amount is None:
        return "unknown"
    return f"{amount / _GB:,.0f} GB" if amount >= 10 * _GB else f"{amount / _GB:.1f} GB"


def base_size(training: TrainingSettings | None) -> ModelSize | None:
    """Of the model that trainings start from; None: unknown before its download."""
    if training is None:
        return None
    base = training.base_model
    if base.source == "huggingface":
        return _size_of(base.model or "", base.revision)
    return _size_of(str(PACKAGED_MODEL), None)


def sft_row_tokens(name: str, recipe: SftRecipe) -> int:
    """Tokens of a usual row: assumed for the text, computed for the critic's images."""
    options = recipe.options
    longest, pixels = options.get("cutoff_len", 2048), options.get("image_max_pixels", 768**2)
    return _row_tokens(name, longest, pixels)


def _row_tokens(name: str, longest: int, image_pixels: int) -> int:
    images = 0 if name.startswith("planner") else _CRITIC_IMAGES
    tokens = _TEXT_TOKENS[name] + images * image_pixels // _AGENT_PIXELS_A_TOKEN
    return min(tokens, longest)


def drawing_seconds(settings: DiffusersSettings, references: int) -> float | None:
    """Of a GPU that draws an image from so many others; None: the pipeline's size is unknown."""
    try:
        selected = select_model(settings)
    except FoundryError:
        return None
    if selected.model.model not in _PIPELINES or not selected.params.steps:
        return None
    denoiser, _ = _PIPELINES[selected.model.model]
    width, height = selected.params.pixels or (1024, 1024)
    image, steps = width * height // _PIXELS_A_TOKEN, selected.params.steps
    # References that are cached take part in the first step only: a part of each, on average.
    given = references * image // (steps if selected.model.caches_references else 1)
    tokens = _PROMPT_TOKENS + image + given
    is_guided = selected.model.guided_by == "true_cfg_scale" and selected.params.guidance != 1
    return picture_seconds(denoiser, tokens, steps * (2 if is_guided else 1))


def lora_rank(settings: SftSettings) -> int:
    """Of a training's adapters; 0: it trains all weights."""
    options = read_recipe(settings).options
    return int(options.get("lora_rank", 8)) if options.get("finetuning_type") == "lora" else 0


def _sft_needs(name: str, settings: SftSettings, size: ModelSize | None) -> StageNeeds:
    recipe, rank = read_recipe(settings), lora_rank(settings)
    if size is None:
        return StageNeeds(name, recipe.gpus, *[None] * 4)
    tokens = recipe.batch_per_device * sft_row_tokens(name, recipe)
    used = size.sft_gpu_bytes(max(recipe.gpus, 1) * settings.nodes, rank, tokens)
    trained = size.adapter_parameters(rank) if rank else size.parameters
    return StageNeeds(
        name,
        recipe.gpus,
        used + _GPU_EXTRA if recipe.gpus else 0.0,
        recipe.gpus * _PROCESS if recipe.gpus else _CPU_PROCESS["sft"] + used,
        (recipe.options.get("save_total_limit", 1) + 1) * SFT_CHECKPOINT_BYTES * trained,
        size.weights_bytes,
    )


def _grpo_needs(name: str, settings: GrpoSettings, size: ModelSize | None) -> StageNeeds:
    """On GPUs, the most of an update, with all that is trained; of rollouts, for which weights and
    moments stay unless they are offloaded; and of the hand-over of weights, which vLLM and the
    trainer hold at that time. With a divergence from the parent, that is offloaded as well."""
    if size is None:
        return StageNeeds(name, settings.gpus, *[None] * 4)
    rank, longest = settings.lora_rank, settings.prompt_length + settings.response_length
    usual = _row_tokens(name, longest, settings.image_max_pixels)
    state = size.grpo_state_bytes(rank, settings.devices)
    tokens = settings.tokens_per_gpu or settings.pass_size * usual
    # Fused kernels, which adapters have, hold no logits.
    update = state + tokens * (size.block_bytes if rank else size.activation_bytes)
    resting = 0.0 if settings.offload else state * GRPO_CHECKPOINT_BYTES / TRAINED_BYTES
    rollouts = resting + size.served_gpu_bytes(settings.rollout_gpus, longest)
    weights = 4 * (size.parameters + size.adapter_parameters(rank)) / settings.devices
    hand_over = max(weights, resting) + size.served_gpu_bytes(settings.rollout_gpus, 0)
    adapters = 2 * 4 * size.adapter_parameters(rank)
    checkpoint = 4 * size.parameters + adapters if rank else GRPO_CHECKPOINT_BYTES * size.parameters
    offloaded = size.grpo_state_bytes(rank) if settings.offload else 0.0
    reference = 4 * size.parameters if settings.kl and not rank else 0
    merging = 6 * size.parameters  # the last checkpoint's weights, and the model's
    host = max(settings.gpus * _PROCESS + offloaded + reference, merging)
    return StageNeeds(
        name,
        settings.gpus,
        max(update, rollouts, hand_over) + _GPU_EXTRA if settings.gpus else 0.0,
        host if settings.gpus else _CPU_PROCESS["rl"] + update,
        (_GRPO_CHECKPOINTS + 1) * checkpoint,
        size.weights_bytes,
    )


def _server_needs(name: str, server: Server, base: ModelSize | None) -> StageNeeds:
    """`base`: size of the model that a trained agent, which a server may serve, starts from."""
    count, stage = len(server.gpus), f"server {name}"
    match server:
        case AgentServer():
            size = _size_of(server.model, server.revision) if server.model else base
            if size is None:
                return StageNeeds(stage, count, None, None)
            tokens = server.max_length or _SERVED_TOKENS
            if not count:
                host = _CPU_PROCESS["agents"] + 2 * size.weights_bytes
                return StageNeeds(stage, host=host)
            used = size.served_gpu_bytes(server.tensor_parallel or count, tokens)
            return StageNeeds(stage, count, used + _GPU_EXTRA, count * _PROCESS)
        case ImageServer(pipeline=DiffusersSettings() as pipeline):
            weights, held = _pipeline_bytes(pipeline), _pipeline_bytes(pipeline, server.offload)
            if weights is None or held is None:
                return StageNeeds(stage, count, None, None)
            host = max(count, 1) * weights + _PROCESS  # each replica loads them there first
            return StageNeeds(stage, count, held + server.batch * _IMAGE if count else 0.0, host)
        case ImageServer():
            return StageNeeds(stage)
    return StageNeeds(stage, count, None, None)


def _size_of(model: str, revision: str | None) -> ModelSize | None:
    """None: it is not downloaded and none of those known, or of another family."""
    folder = Path(model) / "config.json"
    path = folder if folder.is_file() else cached_file(model, revision, "config.json")
    if path is None:
        return KNOWN_SIZES.get(model)
    try:
        return ModelSize.of(json.loads(path.read_text("utf-8")))
    except (KeyError, ValueError):
        return None


def _pipeline_bytes(settings: DiffusersSettings, largest_part: bool = False) -> float | None:
    try:
        model = select_model(settings).model
    except FoundryError:
        return None
    if here := weights_bytes(model.model, model.revision, largest_part):
        return here
    parts = _PIPELINES.get(model.model)
    return parts and 2 * (max(parts) if largest_part else sum(parts))


def _to_install(
    servers: Servers, training: TrainingSettings | None
) -> Iterator[tuple[Purpose, Hardware]]:
    """Environments that a run on this machine makes first."""
    needed: dict[tuple[Purpose, Hardware], None] = {}
    if training:
        for settings in (training.planner_sft, training.critic_sft):
            needed["sft", "gpu" if read_recipe(settings).gpus else "cpu"] = None
        for rl in training.reinforcements.values():
            needed["rl", "gpu" if rl.gpus else "cpu"] = None
    for server in servers.values():
        if isinstance(server, AgentServer):
            needed["agents", "gpu" if server.gpus else "cpu"] = None
    for purpose, hardware in needed:
        if not (environment_of(purpose, hardware) / COMPLETE).is_file():
            yield purpose, hardware


def _downloads(servers: Servers, training: TrainingSettings | None) -> float | None:
    """Bytes of weights that are not here yet; None: of some the size is unknown."""
    found: dict[str, float | None] = {}
    if training and training.base_model.source == "huggingface":
        base = training.base_model
        found[base.model or ""] = _missing_bytes(base.model or "", base.revision)
    for server in servers.values():
        if isinstance(server, AgentServer) and server.model:
            found[server.model] = _missing_bytes(server.model, server.revision)
        if isinstance(server, ImageServer) and server.pipeline and not server.weights_per_gpu:
            found[server.model] = _pipeline_bytes(server.pipeline)
    sizes = list(found.values())
    return None if None in sizes else sum(size or 0.0 for size in sizes)


def _missing_bytes(model: str, revision: str | None) -> float | None:
    if Path(model).is_dir() or weights_bytes(model, revision):
        return 0.0
    size = KNOWN_SIZES.get(model)
    return size.weights_bytes if size else None
