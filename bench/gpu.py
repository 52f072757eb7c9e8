"""The first half hour on a borrowed GPU: `python -m bench.gpu all`, or the names of some stages.

Without Dagster, weights and keys: models have random weights and the shapes of the real ones, whose
configurations are below. After every stage its numbers are added to `gpu_bench.json`. Without CUDA,
or with `--tiny`, each stage is rehearsed with tiny shapes: that shows that it runs, its numbers are
those of the rehearsal. What cannot be run has `skipped` with the reason, and no numbers.

Parts that need the trainers' environments run this file with their interpreters (`--inside`).
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

Numbers = dict[str, Any]

_ENCODER_8B: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
_TEXT_8B = _ENCODER_8B | {"max_position_embeddings": 262144, "rope_theta": 5000000.0}
_VISION_8B = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "out_hidden_size": 4096,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}
_KLEIN_9B: dict[str, Any] = {
    "in_channels": 128,
    "num_layers": 8,
    "num_single_layers": 24,
    "attention_head_dim": 128,
    "num_attention_heads": 32,
    "joint_attention_dim": 3 * 4096,  # three layers of the encoder
    "axes_dims_rope": (32, 32, 32, 32),
    "guidance_embeds": False,
}
_GRID = 64  # patches a side of an image of 1024 x 1024 pixels
_VOCABULARY, _WIDTH = 151_936, 4096
_LENGTHS = (3000, 4800, 6700)  # tokens of a critic's row, images included


def klein(is_tiny: bool, folder: Path) -> Numbers:
    """FLUX.2-klein of 9B shapes through `PipelineRunner`: text to image and edits."""
    from inference.backends.diffusers.backend import DiffusersSettings, select_model
    from inference.backends.diffusers.pipeline_runner import GenerationSpec, PipelineRunner
    from warehouse import EncodedImage

    _build_klein(is_tiny, folder)
    side, device = (64, "cpu") if is_tiny else (1024, "cuda")
    size = f"{side}x{side}"
    settings = DiffusersSettings(model=str(folder), size=size, steps=4, device=device, batch=4)
    with _measured(device) as loading:
        runner = PipelineRunner(selected := select_model(settings), device, batch=4)
    reference = EncodedImage.white((side, side))

    def specs(count: int, references: int) -> list[GenerationSpec]:
        images = (reference,) * references
        return [GenerationSpec("a red kite", n, selected.params, images) for n in range(count)]

    numbers: Numbers = {"load": loading}
    for name, count, references in (
        ("text, batch 1", 1, 0),
        ("text, batch 4", 4, 0),
        ("edit, 1 reference", 1, 1),
        ("edit, 4 references", 1, 4),
    ):
        runner.draw(specs(count, references))  # kernels are chosen and compiled
        with _measured(device) as drawing:
            results = runner.draw(specs(count, references))
        if failed := next((each for each in results if isinstance(each, Exception)), None):
            drawing["error"] = str(failed)
        drawing["images_a_second"] = count / drawing["seconds"]
        numbers[name] = drawing
    return numbers


def _build_klein(is_tiny: bool, folder: Path) -> None:
    from inference.backends import torch_cpu_shim
    from inference.backends.diffusers import tiny

    torch_cpu_shim.install()  # before diffusers is imported
    if is_tiny:
        tiny.build("Flux2KleinPipeline", folder)
    else:
        _klein_pipeline("cuda").save_pretrained(folder)


def _klein_pipeline(device: str) -> Any:
    import diffusers
    import transformers

    from inference.backends.diffusers.tiny import chat_tokenizer

    encoder = transformers.Qwen3Config(**_ENCODER_8B)
    return diffusers.Flux2KleinPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_random(diffusers.AutoencoderKLFlux2, device),
        text_encoder=_random(lambda: transformers.Qwen3ForCausalLM(encoder), device),
        tokenizer=chat_tokenizer(),
        transformer=_random(lambda: diffusers.Flux2Transformer2DModel(**_KLEIN_9B), device),
        is_distilled=True,
    )


def logprobs(is_tiny: bool, folder: Path) -> Numbers:
    """verl's log-probabilities of a row, forward and backward, from the last hidden states on."""
    options = {
        "device": "cpu" if is_tiny else "cuda",
        "sizes": (64, 16) if is_tiny else (_VOCABULARY, _WIDTH),
        "lengths": [20, 60] if is_tiny else _LENGTHS,
        "ways": ["plain", "entropy", "chunked entropy", "fused"]
        + ([] if is_tiny else ["fused in triton"]),
    }
    return _inside(_environment("rl", is_tiny), "logprobs", options)


def _logprobs_inside(options: Mapping[str, Any]) -> Numbers:
    import torch

    device, numbers = options["device"], Numbers()
    vocabulary, width = options["sizes"]
    for way in options["ways"]:
        for length in options["lengths"]:
            torch.manual_seed(0)
            shared = {"device": device, "dtype": torch.bfloat16, "requires_grad": True}
            hidden = torch.randn(1, length, width, **shared)
            weights = torch.randn(vocabulary, width, **shared)
            labels = torch.randint(vocabulary, (1, length), device=device)
            try:
                for _warm_up in (True, False):
                    hidden.grad = weights.grad = None
                    with _measured(device) as found:
                        _log_probability(way, hidden, weights, labels).backward()
            except Exception as error:  # memory, or a kernel that cannot be compiled
                found = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            numbers[f"{way}, {length} tokens"] = found
    return numbers


def _log_probability(way: str, hidden: Any, weights: Any, labels: Any) -> Any:
    """The sum over a row of the labels' log-probabilities, as verl's actor computes them."""
    from verl.utils import torch_functional as functional

    if way == "fused":
        from verl.utils.experimental.torch_functional import FusedLinearForPPO

        return FusedLinearForPPO()(hidden, weights, labels)[0].sum()
    if way == "fused in triton":
        from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy

        return linear_cross_entropy(hidden, weights, labels, 1.0, "none")[0].sum()
    logits = (hidden @ weights.T).squeeze(0)
    is_plain = way == "plain"
    found = functional.logprobs_from_logits(logits, labels[0], inplace_backward=is_plain)
    if is_plain:
        return found.sum()
    chunked = functional.entropy_from_logits_with_chunking
    entropy = chunked if way == "chunked entropy" else functional.entropy_from_logits
    return found.sum() + 0 * entropy(logits).sum()  # as verl multiplies it


def lora(is_tiny: bool, folder: Path) -> Numbers:
    """A Qwen3-VL of 8B shapes: steps of LoRA on a critic's rows, and decoding."""
    import torch

    from inference.backends.model_files import device_and_dtype

    device, _ = device_and_dtype("cpu" if is_tiny else "cuda")
    from transformers import Qwen3VLForConditionalGeneration

    config = _agent_config(is_tiny)
    model = _random(lambda: Qwen3VLForConditionalGeneration(config), device)
    numbers: Numbers = {"parameters": sum(weights.numel() for weights in model.parameters())}
    prompts = torch.randint(9, 200, (2 if is_tiny else 16, 32 if is_tiny else 1024), device=device)
    tokens = 8 if is_tiny else 128
    limits = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": False}
    with torch.no_grad(), _measured(device) as decoding:
        model.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), **limits)
    decoding["tokens_a_second"] = len(prompts) * tokens / decoding["seconds"]
    numbers[f"decoding, batch {len(prompts)}"] = decoding
    return numbers | _lora_steps(model, device, is_tiny)


def _lora_steps(model: Any, device: str, is_tiny: bool) -> Numbers:
    import torch
    from peft import LoraConfig, get_peft_model

    maps = r".*language_model.*\.(q|k|v|o|gate|up|down)_proj"
    adapted = get_peft_model(model, LoraConfig(r=4 if is_tiny else 32, target_modules=maps))
    adapted.gradient_checkpointing_enable()
    adapted.enable_input_require_grads()
    adapted.train()
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=1e-4)
    numbers: Numbers = {}
    for batch in (1, 2):
        inputs = _critic_rows(model.config, batch, device, is_tiny)
        for _warm_up in (True, False):
            with _measured(device) as step:
                adapted(**inputs).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        numbers[f"step, batch {batch}, {inputs['input_ids'].shape[1]} tokens"] = step
    return numbers


def _critic_rows(config: Any, batch: int, device: str, is_tiny: bool) -> Mapping[str, Any]:
    """Two images, and some text around them, in every row."""
    import torch

    side = 4 if is_tiny else _GRID
    vision, text = config.vision_config, 20 if is_tiny else 1500
    tokens = [config.image_token_id] * (side // 2) ** 2
    image = [config.vision_start_token_id, *tokens, config.vision_end_token_id]
    ids = torch.tensor([[*image, *image, *range(9, 9 + text)]] * batch, device=device)
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    pixels = torch.randn(2 * batch * side * side, values, device=device, dtype=torch.bfloat16)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == config.image_token_id).int(),
        "labels": ids.masked_fill(ids == config.image_token_id, -100),
        "pixel_values": pixels,
        "image_grid_thw": torch.tensor([[1, side, side]] * (2 * batch), device=device),
    }


def grpo(is_tiny: bool, folder: Path) -> Numbers:
    """GRPO of the packaged model by our driver: two steps, a kill, two more, the merged model.

    Rollouts are vLLM's on a GPU, and those of the plugin `verl_cpu` in a rehearsal.
    """
    job = _grpo_job(is_tiny, folder)
    command = [sys.executable, "-m", job.module, str(job.write())]
    started = time.monotonic()
    with _used_gpu_memory() as used:
        # In a session of its own, whose processes end with it, as launchers start it.
        driver = subprocess.Popen(
            command, cwd=job.folder, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert driver.stdout
        steps = [time.monotonic() - started for _step in _first_steps(driver.stdout, 2)]
        driver.kill()
        driver.wait()
        resumed = time.monotonic()
        done = subprocess.run(command, cwd=job.folder, capture_output=True, text=True)
    if len(steps) < 2 or done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{len(steps)} steps before the kill, then: {_cause(lines)}")
    finished = json.loads(done.stdout.strip().splitlines()[-1])["finished"]
    return {
        "seconds until the first step": steps[0],
        "seconds of the second step": steps[1] - steps[0],
        "seconds from the kill to the merged model": time.monotonic() - resumed,
        "steps": finished["metrics"]["steps"],
        "merged": (Path(finished["model"]) / "model.safetensors").is_file(),
        **used,
    }


def _first_steps(output: Iterable[str], count: int) -> Iterator[str]:
    """The messages of a driver that a step is done, so many at most."""
    return islice((line for line in output if '"step"' in line), count)


def _grpo_job(is_tiny: bool, folder: Path) -> Any:
    from inference.backends.factory import Backends, RoleBindings
    from training.base_model import PACKAGED_MODEL
    from training.grpo.driver import GrpoJob, grpo_job
    from training.grpo.recipe import CriticGrpoSettings

    sketch: Any = dict.fromkeys(("planner", "generator", "critic", "scorer"), "sketch")
    gpu = {} if is_tiny else {"gpus": 1, "tensor_parallel": 1}
    small = {"batch": 2, "mini_batch": 2, "n": 2, "save_every": 1, "max_steps": 4, "threads": 1}
    settings = CriticGrpoSettings(**small, **gpu)
    job = GrpoJob(
        parent=PACKAGED_MODEL,
        data=grpo_rows(folder, 8),
        settings=settings,
        root=str(folder / "home"),
        roles=Backends(roles=RoleBindings(**sketch)),
        version="bench",
    )
    return grpo_job("critic_rl", folder / "job", job)


def grpo_rows(folder: Path, count: int) -> Path:
    """An export's file for verl, of rows about two images; the images are in `folder/home`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from warehouse import EncodedImage, Home

    images = [EncodedImage.white((96, 96)), EncodedImage.white((64, 96))]
    origin, edited = [Home(folder / "home").images.put(image) for image in images]
    rows = [
        {
            "data_source": "interleave_critic",
            "prompt": [{"role": "user", "content": "<image><image>\nGoal: Paint a tree."}],
            "images": [{"bytes": image.data} for image in images],
            "ability": "critic",
            "reward_model": {
                "style": "rule",
                "ground_truth": {"success": number % 2 == 0, "semantics": 3.0, "quality": 9.0},
            },
            "extra_info": {
                "index": number,
                "split": "train",
                "row_id": f"row{number}",
                "origin_prompt": "Paint a tree.",
                "rewritten_prompt": "",
                "origin_image": origin,
                "edited_image": edited,
            },
        }
        for number in range(count)
    ]
    (folder / "rows").mkdir(parents=True)
    path = folder / "rows" / "critic_rl.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def vllm(is_tiny: bool, folder: Path) -> Numbers:
    """vLLM alone, with weights that it makes up: what starts, and how fast it decodes.

    Of the versions that are pinned, on GPUs that of verl, which is also the one of rollouts.
    """
    _write_agent(is_tiny, folder)
    python = _environment("agents" if is_tiny else "rl", is_tiny)
    options = {"model": str(folder), "is_tiny": is_tiny}
    bounded = {**options, "max_model_len": 512 if is_tiny else 20_480}
    numbers = {"with max_model_len": _inside(python, "vllm", bounded)}
    reason = "on the CPU the cache has a fixed size, whatever the longest sequence"
    unbounded = {"skipped": reason} if is_tiny else _inside(python, "vllm", options)
    return {**numbers, "without max_model_len": unbounded}


def _vllm_inside(options: Mapping[str, Any]) -> Numbers:
    from vllm import LLM, SamplingParams

    on_cpu: dict[str, Any] = {"dtype": "float32", "kv_cache_memory_bytes": 2**28}
    on_gpu: dict[str, Any] = {"dtype": "bfloat16", "gpu_memory_utilization": 0.6}
    hardware = on_cpu | {"enforce_eager": True} if options["is_tiny"] else on_gpu
    length = options.get("max_model_len")
    limit = {"max_model_len": length} if length else {}
    with _used_gpu_memory() as used:
        started = time.monotonic()
        model = LLM(options["model"], load_format="dummy", **hardware, **limit)
        ready = time.monotonic() - started
        tokens, count = (8, 2) if options["is_tiny"] else (256, 64)
        sampling = SamplingParams(max_tokens=tokens, min_tokens=tokens, ignore_eos=True)
        started = time.monotonic()
        model.generate([{"prompt_token_ids": [9] * 16}] * count, sampling)
        seconds = time.monotonic() - started
    return {"start_seconds": ready, "tokens_a_second": count * tokens / seconds, **used}


def _write_agent(is_tiny: bool, folder: Path) -> None:
    """A model's folder without weights: a configuration of 8B shapes, the packaged tokenizer."""
    from training.base_model import PACKAGED_MODEL

    unwanted = shutil.ignore_patterns("*.safetensors", "config.json")
    shutil.copytree(PACKAGED_MODEL, folder, ignore=unwanted)
    _agent_config(is_tiny).save_pretrained(folder)


def _agent_config(is_tiny: bool) -> Any:
    """The packaged model's, with the sizes of 8B unless it is to be tiny."""
    from inference.backends import torch_cpu_shim
    from training.base_model import PACKAGED_MODEL

    torch_cpu_shim.install()
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(PACKAGED_MODEL))
    if is_tiny:
        return config
    values = config.to_dict()
    text = values["text_config"] | _TEXT_8B | {"tie_word_embeddings": False}
    text["rope_parameters"] = text["rope_parameters"] | {
        "mrope_section": [24, 20, 20],
        "rope_theta": text.pop("rope_theta"),
    }
    values |= {"text_config": text, "vision_config": values["vision_config"] | _VISION_8B}
    return type(config).from_dict(values | {"tie_word_embeddings": False})


STAGES: dict[str, Callable[[bool, Path], Numbers]] = {
    "klein": klein,
    "logprobs": logprobs,
    "lora": lora,
    "grpo": grpo,
    "vllm": vllm,
}
_INSIDE = {"logprobs": _logprobs_inside, "vllm": _vllm_inside}


def main(arguments: Sequence[str]) -> int:
    """Run the stages that are named; returns the exit code: 1 where one of them failed."""
    parser = argparse.ArgumentParser("python -m bench.gpu", description=__doc__)
    parser.add_argument("stages", nargs="+", choices=[*STAGES, "all"])
    parser.add_argument("--tiny", action="store_true", help="rehearse on the CPU")
    parser.add_argument("--out", type=Path, default=Path("gpu_bench.json"))
    options = parser.parse_args(arguments)
    names = [name for name in STAGES if name in options.stages or "all" in options.stages]
    is_tiny = options.tiny or not _nvidia_smi("name")
    failed = False
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        numbers = _run(name, is_tiny)
        failed |= "error" in numbers
        _save(options.out, name, is_tiny, numbers)
        print(json.dumps({name: numbers}, indent=2), flush=True)
    return int(failed)


def _run(name: str, is_tiny: bool) -> Numbers:
    from schemas import FoundryError

    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as scratch:
        started = time.monotonic()
        try:
            numbers = STAGES[name](is_tiny, Path(scratch) / name)
        except FoundryError as error:
            numbers = {"skipped": str(error)}
        except Exception as error:  # the other stages are worth their minutes all the same
            numbers = {"error": f"{type(error).__name__}: {error}"}
        return numbers | {"seconds of the stage": time.monotonic() - started}


def _save(path: Path, name: str, is_tiny: bool, numbers: Numbers) -> None:
    """Add a stage to those of the file; what was on another device is not mixed with it."""
    from warehouse.atomic import atomic_write

    devices = _nvidia_smi("name") if not is_tiny else []
    device = devices[0] if devices else f"{os.cpu_count()} CPU cores, tiny shapes"
    found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    stages = found["stages"] if found.get("device") == device else {}
    content = {"device": device, "python": platform.python_version(), "stages": stages}
    atomic_write(path, json.dumps(content | {"stages": stages | {name: numbers}}, indent=2))


def _environment(purpose: Any, is_tiny: bool) -> Path:
    from inference.environments import ensure_environment

    hardware: Any = "cpu" if is_tiny else "gpu"
    return ensure_environment(purpose, hardware, lambda line: print(line, file=sys.stderr))


def _inside(python: Path, name: str, options: Mapping[str, Any]) -> Numbers:
    """What a function of this file returns in another environment, or the error it ended with."""
    from inference.servers.vllm import compiler_variables

    command = [str(python), "-P", __file__, "--inside", name, json.dumps(options)]
    variables = {**os.environ, **compiler_variables(python), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode:
        return {"error": _cause(done.stderr.strip().splitlines())}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]  # others: logs
    numbers: Numbers = json.loads(lines[-1])
    return numbers


def _cause(lines: Sequence[str]) -> str:
    """The last line that names an exception; servers log much after it."""
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or ["it ended without a word"])[-1].strip()


def _random(build: Callable[[], Any], device: str) -> Any:
    """A model in bfloat16 with random weights, made on its device."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return build()
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _measured(device: str) -> Iterator[Numbers]:
    """Seconds of a block and, on a GPU, the most memory that torch had allocated meanwhile."""
    import torch

    numbers: Numbers = {}
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    yield numbers
    if on_gpu:
        torch.cuda.synchronize()
        numbers["gpu_bytes"] = torch.cuda.max_memory_allocated()
    numbers["seconds"] = time.perf_counter() - started


@contextmanager
def _used_gpu_memory() -> Iterator[Numbers]:
    """The most memory that all processes of the first GPU had meanwhile; nothing without a GPU."""
    numbers: Numbers = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            for used in _nvidia_smi("memory.used")[:1]:
                numbers["gpu_bytes"] = max(numbers.get("gpu_bytes", 0), int(used) * 2**20)

    watching = threading.Thread(target=watch, daemon=True)
    if _nvidia_smi("memory.used"):
        watching.start()
    try:
        yield numbers
    finally:
        ended.set()


def _nvidia_smi(query: str) -> list[str]:
    """A line for each GPU; none where there is none."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        print(json.dumps(_INSIDE[sys.argv[2]](json.loads(sys.argv[3]))))
        sys.exit()
    sys.exit(main(sys.argv[1:]))
