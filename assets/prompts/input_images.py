"""Pictures that come with prompts, for templates that have `input_images`.

What a picture shows is a column of its prompt (`input_image_texts`). It is taken from a folder of
the user's, else from an earlier prompt with the same text, else the profile's generator draws it:
once, through a journal. Only prompts that are run or evaluated get theirs.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from inference.calls.ask import CallSite, ModelCalls
from inference.calls.hashing import attempt_seed
from inference.calls.progress import Progress
from inference.roles import UnusableAnswerError
from schemas import FoundryError
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import ModelCallRow
from warehouse import EncodedImage, Home

from ..core.foundry import FoundryResource

ASSET = "prompts"
_Images = dict[str, str]  # what a picture shows -> its sha256


def add_input_images(
    foundry: FoundryResource,
    pack: str,
    rows: Sequence[PromptRow],
    is_used: Callable[[PromptRow], bool],
    progress: Progress,
) -> tuple[list[PromptRow], list[ModelCallRow]]:
    """The rows with pictures where `is_used`, and all calls that were ever made for them.

    A prompt whose picture the generator refuses to draw is left out.

    Raises FoundryError: a call failed after all retries; finished ones are journaled.
    """
    wanted = [row for row in rows if row.input_image_texts and is_used(row)]
    texts = list(dict.fromkeys(text for row in wanted for text in row.input_image_texts or ()))
    if not texts:
        return list(rows), []
    images = _earlier(foundry.home, pack) | _of_folder(foundry, texts)
    missing = [text for text in texts if text not in images]
    drawn, calls = asyncio.run(_draw(foundry, pack, missing, progress))
    images |= drawn
    given = {row.prompt_id: [images.get(t) for t in row.input_image_texts or ()] for row in wanted}
    complete = (row for row in rows if None not in given.get(row.prompt_id, ()))
    return [
        row.model_copy(update={"input_images": given.get(row.prompt_id, [])}) for row in complete
    ], calls


def folder_digest(folder: Path | None) -> list[tuple[str, str]]:
    """Names and hashes of a folder's files; FoundryError if there is no such folder."""
    if folder is None:
        return []
    if not folder.is_dir():
        raise FoundryError(f"prompts.input_images: no folder {folder}")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def _earlier(home: Home, pack: str) -> _Images:
    """Pictures of the prompts that are stored."""
    columns = ["pack", "input_image_texts", "input_images"]
    rows = home.lake.read(PROMPTS, columns=columns).to_pylist()
    pairs = (
        zip(row["input_image_texts"] or (), row["input_images"], strict=False)
        for row in rows
        if row["pack"] == pack
    )
    return {text: sha256 for each in pairs for text, sha256 in each}


def _of_folder(foundry: FoundryResource, texts: Sequence[str]) -> _Images:
    """Pictures of the user's: the longest file name that is a part of a text."""
    folder = foundry.settings.prompts.input_images
    files = {_words(Path(name).stem): name for name, _ in folder_digest(folder)}
    found: _Images = {}
    for text in texts:
        fitting = [words for words in files if words in _words(text)]
        if folder and fitting:
            content = (folder / files[max(fitting, key=len)]).read_bytes()
            found[text] = foundry.home.images.put(EncodedImage(content))
    return found


def _words(text: str) -> str:
    """Lower-case words between single spaces, so that a part of a text ends with a word."""
    return " ".join(["", *re.findall(r"[^\W_]+", text.lower()), ""])


async def _draw(
    foundry: FoundryResource, pack: str, texts: Sequence[str], progress: Progress
) -> tuple[_Images, list[ModelCallRow]]:
    settings = foundry.settings
    roles = (foundry if texts else foundry.without_keys()).roles

    async def draw(text: str) -> tuple[str, str | None]:
        seed = attempt_seed(settings.bank.seed, text, 0, 0)
        try:
            return text, (await calls.generate(CallSite(text), text, (), seed)).answer.sha256
        except UnusableAnswerError:
            return text, None

    with ModelCalls(foundry.home, ASSET, pack, roles, settings.limits) as calls:
        drawn = await calls.map(draw, texts, settings.limits.in_flight, progress)
        return {text: sha256 for text, sha256 in drawn if sha256}, calls.ledger()
