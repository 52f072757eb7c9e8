"""RISE's items (RISEBench), read from the official file."""

from pathlib import Path
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from schemas.errors import FoundryError, first_problem
from warehouse import EncodedImage

from ..opening.items import read_image

LOGICAL = "logical"
CATEGORIES = ("temporal", "causal", "spatial", LOGICAL)
_CATEGORY_SUFFIX = "_reasoning"
_FILES = ("datav2_total_w_subtask.json", "data_total.json")  # all 360 items, or the examples
_FOLDERS = ("", "data")


class RiseItem(BaseModel):
    """A row of the official file.

    The official script takes a flag for set if it has any value at all, be it false.
    """

    model_config = ConfigDict(frozen=True)

    index: str = Field(pattern=r"^[\w-]+$")
    category: Literal[
        "temporal_reasoning", "causal_reasoning", "spatial_reasoning", "logical_reasoning"
    ]
    instruction: str = Field(min_length=1)
    image: str
    reference: str | None = None
    reference_txt: str | None = None
    reference_img: str | None = None
    consistency_free: JsonValue = None
    reasoning_img: JsonValue = None

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        logical = self.group == LOGICAL
        if not (self.reference_picture or (self.reference_txt if logical else self.reference)):
            raise ValueError("has no reference for a judge")
        if logical and self.is_consistency_free:
            raise ValueError("consistency_free: logical items are always judged for consistency")
        return self

    @property
    def group(self) -> str:
        """One of `CATEGORIES`."""
        return self.category.removesuffix(_CATEGORY_SUFFIX)

    @property
    def is_consistency_free(self) -> bool:
        """Whether the consistency of the picture is not judged."""
        return self.consistency_free is not None

    @property
    def shows_before(self) -> bool:
        """Whether a judge of the reasoning also sees the given picture."""
        return self.reasoning_img is not None

    @property
    def reference_picture(self) -> str | None:
        """The picture that is the right answer, where the protocol uses one."""
        if self.group == "spatial" or (self.group == LOGICAL and not self.reference_txt):
            return self.reference_img
        return None


class RiseData(BaseModel):
    """The official file.

    Args:
        wordless: pictures of logical items are compared with their reference without the
            instruction. In the official script this holds for all of them as soon as one item has
            the key `reasoning_wo_ins`.
        flagged: an item has the key `consistency_free`. The official score then takes a missing
            flag for a set one (a missing value of pandas is true), so that no non-logical item
            without the key has consistency in its score.
    """

    items: tuple[RiseItem, ...]
    folder: Path
    wordless: bool
    flagged: bool

    def counts_consistency(self, item: RiseItem) -> bool:
        """Whether the official score of an item weighs its consistency."""
        if "consistency_free" in item.model_fields_set:
            return not item.consistency_free
        return item.group == LOGICAL or not self.flagged

    def picture(self, item: RiseItem, name: str) -> EncodedImage:
        """A picture of an item; FoundryError: it is missing or damaged."""
        return read_image(self.folder / name, item.index)


_ROWS = TypeAdapter(list[dict[str, JsonValue]])
_ITEMS = TypeAdapter(tuple[RiseItem, ...])


def load(source: Path) -> RiseData:
    """The items, in the file's order.

    Args:
        source: a folder with an official file and its pictures, or a copy of the repository.

    Raises:
        FoundryError: a missing or damaged file, an item twice or a missing picture, in one line.
    """
    path = _data_file(source)
    try:
        rows = _ROWS.validate_json(path.read_bytes())
        items = _ITEMS.validate_python(rows)
    except OSError as error:
        raise FoundryError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    except ValidationError as error:
        problem = first_problem(error, root="file")
        raise FoundryError(f"{path}: item {problem}; copy the official file again") from error
    data = RiseData(
        items=items,
        folder=path.parent,
        wordless=any("reasoning_wo_ins" in row for row in rows),
        flagged=any("consistency_free" in row for row in rows),
    )
    _check(path, data)
    return data


def _data_file(source: Path) -> Path:
    paths = (source / folder / name for name in _FILES for folder in _FOLDERS)
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise FoundryError(
            f"{source}: has neither {' nor '.join(_FILES)} of RISEBench; "
            "give the folder of the official data"
        )
    return found


def _check(path: Path, data: RiseData) -> None:
    if not data.items:
        raise FoundryError(f"{path}: has no items; copy the official file again")
    seen: set[str] = set()
    for item in data.items:
        if item.index in seen:
            raise FoundryError(f"{path}: item {item.index} is there twice; remove one")
        seen.add(item.index)
        for name in (item.image, item.reference_picture):
            if name is not None and not (data.folder / name).is_file():
                raise FoundryError(
                    f"{path}: item {item.index}: its picture {name} is missing; "
                    "unpack RISEBench's pictures beside the file"
                )
