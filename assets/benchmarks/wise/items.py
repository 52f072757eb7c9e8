"""WISE's prompts, read from the official files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from schemas.errors import FoundryError, first_problem

Version = Literal["legacy", "verified"]

# Group -> its last prompt id. The official calculators group by id, never by the files' category.
_LAST_IDS: dict[Version, dict[str, int]] = {
    "legacy": {
        "culture": 400,
        "time": 567,
        "space": 700,
        "biology": 800,
        "physics": 900,
        "chemistry": 1000,
    },
    "verified": {
        "culture": 400,
        "time": 520,
        "space": 640,
        "biology": 760,
        "physics": 880,
        "chemistry": 1000,
    },
}
_AREAS = ("cultural_common_sense", "spatio-temporal_reasoning", "natural_science")
_SUFFIXES: dict[Version, str] = {"legacy": "", "verified": "_verified"}
_FOLDERS: dict[Version, tuple[str, ...]] = {
    "legacy": ("WISE_legacy/data", "data", ""),
    "verified": ("data_verified", ""),
}


class WisePrompt(BaseModel):
    """A prompt, and the explanation that only a judge gets."""

    model_config = ConfigDict(frozen=True)

    prompt_id: int = Field(ge=1, le=1000)
    prompt: str = Field(alias="Prompt", min_length=1)
    explanation: str = Field(alias="Explanation")


_PROMPTS = TypeAdapter(list[WisePrompt])


def group_of(prompt_id: int, version: Version) -> str:
    """The group of an id in 1..1000, as the official calculator of that version groups it."""
    return next(group for group, last in _LAST_IDS[version].items() if prompt_id <= last)


def load(source: Path, version: Version) -> list[WisePrompt]:
    """The prompts of the three official files, by id.

    Args:
        source: a copy of the official repository, or its folder with the files of that version.

    Raises:
        FoundryError: a missing or damaged file, or an id twice, in one line.
    """
    prompts = [prompt for file in _files(source, version) for prompt in _read(file)]
    _check_unique(source, prompts)
    return sorted(prompts, key=lambda prompt: prompt.prompt_id)


def _files(source: Path, version: Version) -> list[Path]:
    names = [f"{area}{_SUFFIXES[version]}.json" for area in _AREAS]
    folders = [source / folder for folder in _FOLDERS[version]]
    folder = next((folder for folder in folders if (folder / names[0]).is_file()), None)
    if folder is None:
        raise FoundryError(
            f"{source}: has no {names[0]} of WISE ({version}); "
            "give the folder of the official repository"
        )
    return [folder / name for name in names]


def _read(path: Path) -> list[WisePrompt]:
    try:
        return _PROMPTS.validate_json(path.read_bytes())
    except OSError as error:
        raise FoundryError(
            f"{path}: cannot be read ({error.strerror}); copy the official file again"
        ) from error
    except ValidationError as error:
        problem = first_problem(error, root="file")
        raise FoundryError(f"{path}: prompt {problem}; copy the official file again") from error


def _check_unique(source: Path, prompts: Sequence[WisePrompt]) -> None:
    seen: set[int] = set()
    for prompt in prompts:
        if prompt.prompt_id in seen:
            raise FoundryError(f"{source}: prompt {prompt.prompt_id} is there twice; remove one")
        seen.add(prompt.prompt_id)
