"""Settings of the base model."""

from pydantic import Field

from schemas.yaml_config import ConfigModel


class Architecture(ConfigModel):
    """Sizes of a tiny Qwen3-VL; the defaults make 3.6 million parameters."""

    hidden: int = Field(192, multiple_of=32, description="Width of the language model")
    layers: int = Field(5, ge=1, description="Layers of the language model")
    feed_forward: int = Field(512, ge=32, description="Width of its feed-forward layers")
    vision_hidden: int = Field(128, multiple_of=32, description="Width of the vision tower")
    vision_layers: int = Field(2, ge=1, description="Layers of the vision tower")
    vocabulary: int = Field(2048, ge=512, description="Entries that the BPE is trained to")
    image_pixels: int = Field(
        96 * 96, description="Largest image in pixels; a visual token covers 32 x 32"
    )


class PretrainingSettings(ConfigModel):
    """Pretraining of the tiny model: to see and to read, before it is fine-tuned as an agent."""

    sight_steps: int = Field(1200, ge=0, description="Optimizer steps of the vision tower alone")
    sight_batch: int = Field(64, ge=1, description="Images per step of these")
    sight_learning_rate: float = Field(2e-3, gt=0, description="Their peak learning rate")
    steps: int = Field(2400, ge=1, description="Optimizer steps of the whole model")
    batch: int = Field(32, ge=1, description="Samples per step of these")
    learning_rate: float = Field(1e-3, gt=0, description="Their peak learning rate")
    drill_steps: int = Field(
        600, ge=0, description="Optimizer steps of drills, mixed with readings and image samples"
    )
    surprise_steps: int = Field(
        1200,
        ge=0,
        description="Optimizer steps of image samples whose result mostly differs from the request",
    )
    seed: int = Field(0, description="Seed of weights, samples and their order")
    threads: int = Field(2, ge=1, description="CPU threads")


class BaseModelSettings(ConfigModel):
    """How the base model is made."""

    architecture: Architecture = Field(Architecture(), description="Sizes of the tiny model")
    lessons: PretrainingSettings = Field(
        PretrainingSettings(), description="How the tiny model is pretrained"
    )
