"""Profile settings of the `checkpoint` backend: checkpoints, device, batches."""

from pydantic import Field

from schemas.yaml_config import ConfigModel

_REFERENCE = "`promoted`, `name@version` of the table `checkpoints`, or a checkpoint's folder"


class CheckpointSettings(ConfigModel):
    """Planner and critic from Hugging Face checkpoints, in this process."""

    planner: str | None = Field("promoted", description=f"The planner: {_REFERENCE}")
    critic: str | None = Field("promoted", description=f"The critic: {_REFERENCE}")
    device: str = Field(
        "auto", description="cpu, cuda, cuda:1, ...; auto: cuda where there is one (in bfloat16)"
    )
    batch: int = Field(64, ge=1, description="The most questions answered at once")
    batch_tokens: int = Field(
        131_072,
        ge=1,
        description="Tokens of a batch at most, prompts and longest answers together: it bounds "
        "the memory for keys and values (150 kB a token for Qwen3-VL-8B)",
    )
    gather_seconds: float = Field(
        0.005, ge=0, description="How long the first question of a batch waits for others"
    )
