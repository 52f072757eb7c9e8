"""Profile settings of the `editscore` backend: weights, prompts, sampling."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel


class EditScoreSettings(ConfigModel):
    """An open edit-reward model in this process; the defaults of sampling are its authors'."""

    model: str = Field(
        "Qwen/Qwen3-VL-8B-Instruct",
        description="Qwen3-VL or Qwen2.5-VL: a Hugging Face id, or a folder",
    )
    revision: str | None = Field(None, description="Commit, tag or branch of it; null: the newest")
    adapter: str | None = Field(
        "EditScore/EditScore-Qwen3-VL-8B-Instruct",
        description="Its low-rank weights, likewise; null: they are merged into the model",
    )
    adapter_revision: str | None = Field(None, description="Commit, tag or branch of them")
    prompts: Path | None = Field(
        None,
        description="Folder with the prompts it was trained on: `semantics.txt`, in which "
        "`<instruction>` stands for the step's goal, and `quality.txt`; null: our own prompts",
    )
    score_range: float = Field(25, gt=0, description="Its highest rating")
    samples: int = Field(
        4, ge=1, description="Answers to each prompt, of which the mean counts (authors: 1 or 4)"
    )
    temperature: float = Field(0.7, gt=0, description="Of an answer's sampling")
    top_p: float = Field(
        0.9, gt=0, le=1, description="Share of the probability that is sampled from"
    )
    top_k: int = Field(20, ge=1, description="Tokens that are sampled from, at most")
    seed: int = Field(42, description="Of the first sample; the next ones follow it")
    max_new_tokens: int = Field(512, ge=1, description="Tokens of an answer at most")
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: cuda where there is one"
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto", description="Of the weights; auto: bfloat16 on a GPU, float32 on a CPU"
    )
    batch: int = Field(
        32,
        ge=1,
        description="Prompts answered at once, at most; an attempt has two per sample, and "
        "`limits.agents` attempts are under way",
    )
    batch_tokens: int = Field(
        131_072,
        ge=1,
        description="Tokens of a batch at most, prompts and longest answers together: it bounds "
        "the memory for keys and values (150 kB a token for Qwen3-VL-8B)",
    )
    gather_seconds: float = Field(
        0.02, ge=0, description="How long the first prompt of a batch waits for others"
    )
