"""A pack whose prompts are given in a file instead of made from templates.

Its folder has `pack.yaml`, `prompts.jsonl` (a prompt per line: `text`, and perhaps `category` and
`images`, names of files below `images/`), as `interleave import prompts` writes it. The order of
the file is that of the shards, so that prompts may be added at its end.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from inference.calls.hashing import unit_interval
from schemas import DocumentError, FoundryError
from schemas.errors import first_problem
from schemas.prompts import PromptRow
from schemas.yaml_config import ConfigModel, load_document
from warehouse import EncodedImage, Home

from .pack import Category, FilePrompt, Pack, SubCategory, Taxonomy, Template, prompt_id, shard_name
from .rounds import TrainStretch, stretch_at
from .settings import BankSettings
from .template_fills import Content, NearDuplicates, content_words

INFO, PROMPTS_FILE, IMAGES = "pack.yaml", "prompts.jsonl", "images"
IMPORTED = "imported"
"""The template of all prompts of files, and the category of those without one."""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9_-]+")
# How the authors' prompts ask for pictures and texts, or do not: the story is the same.
_SUFFIX = re.compile(
    r"[\s.]*(both visually and textually"
    r"|output each image together with a concise text caption)[\s.]*$",
    re.IGNORECASE,
)


class PackInfo(ConfigModel):
    """`pack.yaml`: where the prompts are from."""

    title: str = Field(description="Name of the pack, shown to people")
    source: str = Field("", description="File, or repository of the Hub with commit and file")
    file_sha256: str = Field("", description="Hash of that file")
    licence: str = Field("not stated", description="Licence of the prompts")
    reader: Literal["sketch"] | None = Field(
        None, description="World that the prompts are about; null: none"
    )


def is_file_pack(folder: Path) -> bool:
    return (folder / PROMPTS_FILE).is_file()


def load_file_pack(folder: Path) -> Pack:
    """The pack of a folder; DocumentError: a line of its files is invalid."""
    info, path = load_document(folder / INFO, PackInfo), folder / PROMPTS_FILE
    prompts = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            prompts.append(FilePrompt.model_validate_json(line))
        except ValidationError as error:
            raise DocumentError(f"{path}:{number}: {first_problem(error)}") from error
    if not prompts:
        raise DocumentError(f"{path}: holds no prompt")
    names = {_category_name(prompt): prompt.category or info.title for prompt in prompts}
    about = f"Prompts of {info.source or path.name}; licence: {info.licence}"
    categories = {name: _category(name, title, about) for name, title in sorted(names.items())}
    taxonomy = Taxonomy.model_construct(
        title=info.title, reader=info.reader, suffixes=[], categories=categories
    )
    template = Template(text="{prompt}", suffixes=False)
    return Pack(folder.name, taxonomy, {}, {IMPORTED: template}, tuple(prompts), folder)


class FileBank:
    """The first `count` prompts of a file, near-duplicates left out, a share of them held out.

    In a stretch of a round, prompts that would be held out are passed over. Quotas have no effect.

    Raises FoundryError: the last shard would have no prompts.
    """

    def __init__(
        self, pack: Pack, settings: BankSettings, count: int, stretches: Sequence[TrainStretch] = ()
    ) -> None:
        self._pack, self._settings, self._stretches = pack, settings, stretches
        self.near_duplicates = 0
        self.prompts = list(islice(self._rows(), count))
        given, size = len(self.prompts), settings.shard_size
        if given <= count - size:
            raise FoundryError(
                f"pack {pack.name!r} has {given} distinct prompts: {-(-given // size)} shards of "
                f"{size}, and {count // size} were asked; lower `sizes` or `bank.shard_size`"
            )

    def _rows(self) -> Iterator[PromptRow]:
        words = Counter(word for each in self._pack.prompts for word in content_words(each.text))
        index = NearDuplicates(words)
        number = 0
        for prompt in self._pack.prompts:
            content = content_words(_SUFFIX.sub("", prompt.text)) | frozenset(prompt.images)
            if not index.add(Content(content, content)):
                self.near_duplicates += 1
                continue
            row = self._row(number, prompt)
            if row.split == "train" or not stretch_at(self._stretches, number):
                yield row
                number += 1

    def _row(self, number: int, prompt: FilePrompt) -> PromptRow:
        name, settings = self._pack.name, self._settings
        category = _category_name(prompt)
        position = unit_interval(f"{settings.seed}/{prompt.text}")
        return PromptRow(
            prompt_id=prompt_id(name, "\n".join([prompt.text, *prompt.images])),
            pack=name,
            category=category,
            subcategory=category,
            template_id=IMPORTED,
            text=prompt.text,
            terms=[],
            suffix=None,
            input_images=list(prompt.images),
            shard=shard_name(name, number // settings.shard_size),
            split="heldout" if position < settings.heldout_share else "train",
        )


def store_images(home: Home, pack: Pack) -> None:
    """Store the images of a pack's prompts in the home.

    Raises FoundryError: an image is missing in the pack's folder, or is another one.
    """
    for sha256 in dict.fromkeys(image for prompt in pack.prompts for image in prompt.images):
        if home.images.exists(sha256):
            continue
        assert pack.folder is not None
        path = pack.folder / IMAGES / f"{sha256}.png"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FoundryError(f"{path} is missing: import the prompts again") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise FoundryError(f"{path} is another image: import the prompts again")
        home.images.put(EncodedImage(content))


def _category(name: str, title: str, about: str) -> Category:
    sub = SubCategory.model_construct(title=title, description=about, banks=[], heldout=False)
    return Category.model_construct(title=title, subcategories={name: sub})


def _category_name(prompt: FilePrompt) -> str:
    name = _NOT_IN_NAMES.sub("-", (prompt.category or "").lower()).strip("-_")
    return name or IMPORTED
