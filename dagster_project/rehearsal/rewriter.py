"""What a rehearsal sets otherwise than the profile, and why; its trainings take the profile's
recipes and options to the CPU, for a step or two."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from training.settings import TrainingSettings
from training.sft.recipe import SftSettings, read_recipe

Kind = Literal["model", "size", "gpu"]
Values = dict[str, Any]

SIDE = 128  # of pictures, in pixels


@dataclass(frozen=True)
class Substitution:
    """A setting that a rehearsal changes.

    Args:
        kind: model: another model or server; size: less of the same; gpu: only a GPU, or more
            machines, can show it.
    """

    path: str
    before: str
    after: str
    kind: Kind


@dataclass
class Rewriter:
    """A profile's values, which are changed in place; every change is recorded."""

    values: Values = field(init=False, default_factory=dict)
    substitutions: list[Substitution] = field(init=False, default_factory=list)

    def section(self, path: str) -> Values:
        section: Values = self.values
        for name in path.split("."):
            section = section[name]
        return section

    def set(self, path: str, name: str, value: Any, kind: Kind) -> None:
        section = self.section(path)
        if (before := section.get(name)) != value:
            self.record(f"{path}.{name}", before, value, kind)
            section[name] = value

    def lower(self, path: str, name: str, most: int) -> None:
        if self.section(path)[name] > most:
            self.set(path, name, most, "size")

    def record(self, path: str, before: object, after: object, kind: Kind) -> None:
        new = Substitution(path, str(before), str(after), kind)
        if new not in self.substitutions:
            self.substitutions.append(new)


def shorten_trainings(rewriter: Rewriter, settings: TrainingSettings) -> None:
    """Change section `training`, except for its base model."""
    training = rewriter.section("training")
    for role in ("planner_sft", "critic_sft"):
        _sft(rewriter, f"training.{role}", getattr(settings, role))
    for role in settings.reinforcements:
        _grpo(rewriter, f"training.{role}")
    for role in ("planner_sft", "critic_sft", *settings.reinforcements):
        if getattr(settings, role).dev_share:  # some of a few prompts
            rewriter.set(f"training.{role}", "dev_share", 0.5, "size")
    rewriter.lower("training.answers", "image_max_pixels", SIDE**2)
    if training["launcher"]["kind"] == "ray":
        rewriter.record("training.launcher", "Ray jobs", "local processes", "gpu")
        training["launcher"] |= {"kind": "local", "address": None}
    training["devices"] = {}
    if training["promote_at_least"]:
        rewriter.set("training", "promote_at_least", {}, "size")


def _sft(rewriter: Rewriter, path: str, settings: SftSettings) -> None:
    recipe, section = read_recipe(settings), rewriter.section(path)
    if recipe.gpus:
        wanted = f"{recipe.gpus} GPUs" + (f" on {settings.nodes} nodes" * (settings.nodes > 1))
        rewriter.record(path, wanted, "the CPU", "gpu")
    quick = {"preprocessing_num_workers": 1, "dataloader_num_workers": 0}
    on_cpu = {"deepspeed": None, "bf16": False, "flash_attn": "sdpa", "use_cpu": True}
    for option in ("deepspeed", "bf16"):
        if recipe.options.get(option):
            before = Path(str(recipe.options[option])).name
            rewriter.record(f"{path}.options.{option}", before, "off", "gpu")
    options = {name: value for name, value in on_cpu.items() if name in recipe.options}
    section["options"] = section["options"] | options | {"use_cpu": True} | quick
    sizes = {"max_steps": 2, "batch": 2, "batch_per_device": 1, "save_steps": 1}
    rewriter.record(path, f"batch {recipe.batch}, all steps", "batch 2, 2 steps", "size")
    pixels = recipe.options.get("image_max_pixels", SIDE**2)
    section |= sizes | {"gpus": 0, "nodes": 1, "threads": 2}
    section["image_max_pixels"] = min(pixels, SIDE**2)


def _grpo(rewriter: Rewriter, path: str) -> None:
    section = rewriter.section(path)
    if section["gpus"]:
        rewriter.record(path, f"{section['gpus']} GPUs, rollouts by vLLM", "the CPU engine", "gpu")
    for option in ("offload", "attention", "tokens_per_gpu", "cluster"):
        if section[option]:
            rewriter.record(f"{path}.{option}", section[option], "off", "gpu")
    for option in [name for name in section["options"] if "gpu" in name]:
        rewriter.record(f"{path}.options", option, "left out", "gpu")
        del section["options"][option]
    rewriter.record(
        path,
        f"{section['batch']} prompts x {section['n']} rollouts a step",
        "2 x 2, 1 step",
        "size",
    )
    section |= {"gpus": 0, "nodes": 1, "cluster": False, "offload": False, "attention": None}
    section |= {"tokens_per_gpu": None, "batch": 2, "mini_batch": 2, "n": 2, "max_steps": 1}
    section |= {"save_every": 1, "micro_batch": 4, "threads": 2, "tensor_parallel": 1}
    for name, most in (("response_length", 64), ("image_max_pixels", SIDE**2)):
        section[name] = min(section[name], most)
    section["prompt_length"] = min(max(section["prompt_length"], 4096), 6144)
