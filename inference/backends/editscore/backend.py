"""The backend `editscore`: EditScore (arXiv 2509.23909), an open reward model of edits, as scorer.

Its two prompts, ratings and grades are described in docs/scorers.md. Ratings are out of
25 and become grades out of 10: `edit_success`, `over_edit`,
`naturalness` and `artifacts`, each the mean over the valid answers of all samples.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from PIL import Image
from pydantic import ConfigDict, Field, model_validator

from schemas.trajectories import Role
from warehouse import EncodedImage, Home
from warehouse.storage import first_line

from ...agent_prompts.templates import IMAGE, escape_tags, render, version_of
from ...calls.hashing import stable_hash
from ...roles import BackendError, Score, UnusableAnswerError
from ..backend import Backends, BackendSettings, Finding, register
from ..checkpoint.decoding import Sampling
from ..checkpoint.encoding import AgentQuery, PromptLayout, resize_to_pixels
from ..checkpoint.model import BatchedModel, LoadedModel, load_encoder, load_weights
from ..model_files import (
    BatchTokens,
    Device,
    DType,
    cached_file,
    device_and_dtype,
    download_command,
    missing_here,
    weights_revision,
)
from ..providers.structured import (
    AnswerFormatError,
    CompletionResult,
    StructuredAnswer,
    parse_answer,
)

_MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER_FILE = "adapter_model.safetensors"
SEMANTICS, QUALITY = "semantics", "quality"
_OWN_PROMPTS = {SEMANTICS: "editscore-semantics", QUALITY: "editscore-quality"}
_GOAL = "<instruction>"
_MAX_GRADE = 10
_MAX_RATING = 25  # as it was trained
# Images come before the text; the variant on Qwen2.5-VL was trained with numbered images.
_LAYOUTS = {
    "qwen3_vl": PromptLayout(),
    "qwen2_5_vl": PromptLayout(
        turn="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + PromptLayout().turn,
        image="<img{number}>: " + PromptLayout().image,
    ),
}
# The model's own image processor chooses the size; only sizes that it rejects are changed.
_ANY_SIZE = partial(resize_to_pixels, least=1, most=sys.maxsize)


# Of the default model. For its adapter no commit was found in public code: it is not pinned.
_MODEL_REVISION = "0c351dd01ed87e9c1b53cbc748cba10e6187ff3b"


@register
class EditScoreSettings(BackendSettings):
    """An open edit-reward model in this process; the defaults of sampling are its authors'."""

    backend = "editscore"
    summary = "An open reward model in this process, where `roles` or `ensemble` names it"
    plays = ("scorer",)

    model: str = Field(
        "Qwen/Qwen3-VL-8B-Instruct",
        description="Qwen3-VL or Qwen2.5-VL: a Hugging Face id, or a folder",
    )
    revision: str | None = Field(
        None,
        description="Commit, tag or branch of it; null: of the default model a fixed commit, of "
        "others the newest",
    )
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
    device: Device = "auto"
    dtype: DType = "auto"
    batch: int = Field(
        32,
        ge=1,
        description="Prompts answered at once, at most; an attempt has two per sample, and "
        "`limits.agents` attempts are under way",
    )
    batch_tokens: BatchTokens = 131_072

    @model_validator(mode="after")
    def _pin_default_model(self) -> "EditScoreSettings":
        if self.revision is None and self.model == type(self).model_fields["model"].default:
            object.__setattr__(self, "revision", _MODEL_REVISION)
        return self

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        return {"scorer": EditScoreScorer(self)}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        reasons = ", ".join(self._missing())
        fix = f"{reasons}; weights are downloaded for the first attempt" if reasons else None
        is_pinned = self.adapter is None or self.adapter_revision
        note = "" if is_pinned else ", not pinned: name a commit in `editscore.adapter_revision`"
        yield Finding(f"scorer {self.adapter or self.model}{note}", fix)
        yield Finding.resolved("wording of editscore", lambda: PromptTexts(self).origin)

    def _missing(self) -> Iterator[str]:
        """Why it cannot be used on this machine, in a few words each; nothing: it can."""
        packages = ["transformers", *(["peft"] if self.adapter else [])]
        yield from missing_here(packages, on_gpu=self.device != "cpu")
        if not any(cached_file(self.model, self.revision, file) for file in _MODEL_FILES):
            yield f"{self.model} not downloaded: {download_command(self.model, self.revision)}"
        adapter, revision = self.adapter, self.adapter_revision
        if adapter and not cached_file(adapter, revision, _ADAPTER_FILE):
            yield f"{adapter} not downloaded: {download_command(adapter, revision)}"


class PromptTexts:
    """Both prompts that the settings name: a folder's, or our own.

    Raises BackendError where a file is missing from the folder, or has no place for the goal.
    """

    def __init__(self, settings: EditScoreSettings) -> None:
        self._custom = dict(_read_texts(settings.prompts)) if settings.prompts else {}
        if self._custom and _GOAL not in self._custom[SEMANTICS]:
            raise BackendError(
                f"{settings.prompts}/{SEMANTICS}.txt: put {_GOAL} where the goal of the step "
                "belongs"
            )

    @property
    def origin(self) -> str:
        """Whose prompts they are, for people."""
        return "its authors', as given" if self._custom else "ours, which it was not trained on"

    @property
    def versions(self) -> list[str]:
        """What the answers depend on, for the model's identity."""
        if self._custom:
            return [self._custom[SEMANTICS], self._custom[QUALITY]]
        return [str(_MAX_RATING), *(version_of(name) for name in _OWN_PROMPTS.values())]

    def semantics(self, instruction: str) -> str:
        """The prompt about the images before and after; `instruction`: the step's goal."""
        goal = escape_tags(instruction)
        if self._custom:
            return IMAGE * 2 + self._custom[SEMANTICS].replace(_GOAL, goal)
        return render(_OWN_PROMPTS[SEMANTICS], instruction=goal, best=str(_MAX_RATING)).text

    def quality(self) -> str:
        """The prompt about the image after."""
        if self._custom:
            return IMAGE + self._custom[QUALITY]
        return render(_OWN_PROMPTS[QUALITY], best=str(_MAX_RATING)).text


def _read_texts(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (SEMANTICS, QUALITY):
        path = folder.expanduser() / f"{name}.txt"
        try:
            yield name, escape_tags(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BackendError(
                f"{path} cannot be read: put the {name} prompt there, or set `editscore.prompts` "
                "to null"
            ) from error


class _RatingAnswer(StructuredAnswer):
    model_config = ConfigDict(extra="ignore")

    reasoning: str = ""
    score: tuple[float, float]


def mean_ratings(prompt: str, completions: Sequence[CompletionResult]) -> tuple[float, float]:
    """The two ratings of a prompt as grades from 0 to 10: the means over the valid answers.

    Raises `UnusableAnswerError` where none is valid, with the prompt's name.
    """
    ratings, errors = [], []
    for completion in completions:
        try:
            ratings.append(_parse(completion))
        except AnswerFormatError as error:
            errors.append(error)
    if not ratings:
        raise UnusableAnswerError(
            f"none of {len(errors)} answers about {prompt} can be read; the first: {errors[0]}"
        )
    return fmean(first for first, _ in ratings), fmean(second for _, second in ratings)


def _parse(completion: CompletionResult) -> tuple[float, float]:
    """Raises `AnswerFormatError`."""
    score = parse_answer(completion, _RatingAnswer).score
    if not all(0 <= rating <= _MAX_RATING for rating in score):  # also false for NaN
        raise AnswerFormatError(f"score: {list(score)} is not within 0 and {_MAX_RATING}")
    first, second = (rating * _MAX_GRADE / _MAX_RATING for rating in score)
    return first, second


_REVISION = 1  # raise when the same answers give other grades
# Settings that grades depend on, besides weights and prompts.
_HASHED_SETTINGS = {"samples", "temperature", "top_p", "top_k", "seed", "max_new_tokens", "dtype"}


class EditScoreScorer:
    """Grades attempts; see `Scorer` in `inference/roles.py`, and this file's docstring.

    The weights are loaded for the first attempt. Raises BackendError: see `PromptTexts`.
    """

    backend = "editscore"

    def __init__(self, settings: EditScoreSettings) -> None:
        self._settings, self._prompts = settings, PromptTexts(settings)
        self._batched = BatchedModel(
            lambda: load(settings, self.model),
            settings.batch,
            settings.batch_tokens,
            Sampling(settings.temperature, settings.top_p, settings.top_k),
        )

    @cached_property
    def model(self) -> str:
        """`name@revision-hash`, which changes whenever grades may."""
        settings = self._settings
        model_revision = weights_revision(settings.model, settings.revision)
        adapter, adapter_revision = settings.adapter, settings.adapter_revision
        adapter_revision = adapter and weights_revision(adapter, adapter_revision)
        hashed = [
            _REVISION,
            settings.model,
            model_revision,
            adapter_revision,
            settings.model_dump(include=_HASHED_SETTINGS) | {"score_range": _MAX_RATING},
            self._prompts.versions,
        ]
        name, revision = Path(adapter or settings.model).name, adapter_revision or model_revision
        return f"{name}@{revision[:12]}-{stable_hash(hashed)[:8]}"

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        images = await asyncio.to_thread(_with_equal_sizes, before, after)
        semantics, quality = await asyncio.gather(
            self._sample(self._prompts.semantics(instruction), images),
            self._sample(self._prompts.quality(), images[1:]),
        )
        return Score(*mean_ratings(SEMANTICS, semantics), *mean_ratings(QUALITY, quality))

    async def _sample(self, text: str, images: tuple[EncodedImage, ...]) -> list[CompletionResult]:
        """All samples of the answer to one prompt."""
        settings = self._settings
        seeds = range(settings.seed, settings.seed + settings.samples)
        queries = [AgentQuery(text, images, settings.max_new_tokens, seed) for seed in seeds]
        return await asyncio.gather(*map(self._batched.complete, queries))


def _with_equal_sizes(
    before: EncodedImage | None, after: EncodedImage
) -> tuple[EncodedImage, EncodedImage]:
    """Both images, the later one in the size of the earlier one, as EditScore's authors do."""
    size = after.image.size
    if before is None:
        return EncodedImage.white(size), after
    if before.image.size == size:
        return before, after
    return before, EncodedImage.of(after.image.resize(before.image.size, Image.Resampling.BICUBIC))


@lru_cache(maxsize=1)
def load(settings: EditScoreSettings, identity: str) -> LoadedModel:
    """The model that the settings name. Raises BackendError where it cannot be loaded."""
    device, dtype = device_and_dtype(settings.device, settings.dtype)
    try:
        model = _load_model(settings, dtype)
        layout = _LAYOUTS[model.config.model_type]
        encoder = load_encoder(settings.model, settings.revision, layout, _ANY_SIZE)
        return LoadedModel(identity, encoder, model.to(device).eval())
    except BackendError:
        raise
    except Exception as error:  # transformers, peft, safetensors and the hub raise all kinds
        problem = f"editscore {identity} cannot be loaded on {device}: {first_line(error)}"
        raise BackendError(problem) from error


def _load_model(settings: EditScoreSettings, dtype: Any) -> Any:
    from transformers import AutoConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    source = {"revision": settings.revision}
    model_type = AutoConfig.from_pretrained(settings.model, **source).model_type
    if model_type not in _LAYOUTS:
        raise BackendError(
            f"editscore.model {settings.model} is a {model_type}; EditScore is for "
            f"{' and '.join(_LAYOUTS)}"
        )
    model = load_weights(settings.model, **source, dtype=dtype, use_safetensors=True)
    if settings.adapter is None:
        return model
    return _merge_adapter(model, settings.adapter, settings.adapter_revision)


def _merge_adapter(model: Any, adapter: str, revision: str | None) -> Any:
    """The model with all of an adapter's weights merged.

    `PeftModel.from_pretrained` only warns about weights that do not match, and the untrained model
    would give the ratings.
    """
    from peft import PeftConfig, PeftModel

    tuned = PeftModel(model, PeftConfig.from_pretrained(adapter, revision=revision))
    result = tuned.load_adapter(adapter, "default", revision=revision)
    unmatched = [*result.missing_keys, *result.unexpected_keys]
    if unmatched:
        raise BackendError(
            f"editscore.adapter {adapter} is not for this model: {len(unmatched)} of its weights "
            f"do not match or are missing, such as {unmatched[0]}"
        )
    return tuned.merge_and_unload()
