"""The words of the two questions: those in a folder that the settings name, or our own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...agent_prompts import IMAGE, escape_tags, render
from ...agent_prompts.templates import version_of
from ...roles import BackendError
from .settings import EditScoreSettings

SEMANTICS, QUALITY = "semantics", "quality"
_OWN = {SEMANTICS: "editscore-semantics", QUALITY: "editscore-quality"}
_GOAL = "<instruction>"


@dataclass(frozen=True)
class PromptTexts:
    """Both questions. `given` are a folder's texts by name; without them they are our own."""

    best: str
    given: dict[str, str]

    @property
    def origin(self) -> str:
        """Whose words they are, for people."""
        return "its authors', as given" if self.given else "ours, which it was not trained on"

    @property
    def facts(self) -> list[str]:
        """What tells this wording from others."""
        if self.given:
            return [self.given[SEMANTICS], self.given[QUALITY]]
        return [self.best, *(version_of(name) for name in _OWN.values())]

    def semantics(self, instruction: str) -> str:
        """What is asked about the pictures before and after; `instruction`: the step's goal."""
        goal = escape_tags(instruction)
        if self.given:
            return IMAGE * 2 + self.given[SEMANTICS].replace(_GOAL, goal)
        return render(_OWN[SEMANTICS], instruction=goal, best=self.best).text

    def quality(self) -> str:
        """What is asked about the picture after."""
        if self.given:
            return IMAGE + self.given[QUALITY]
        return render(_OWN[QUALITY], best=self.best).text


def prompt_texts(settings: EditScoreSettings) -> PromptTexts:
    """The wording that the settings name.

    Raises:
        BackendError: its folder lacks a file, or the place of the goal.
    """
    given = dict(_texts(settings.prompts)) if settings.prompts else {}
    if given and _GOAL not in given[SEMANTICS]:
        raise BackendError(
            f"{settings.prompts}/{SEMANTICS}.txt: put {_GOAL} where the goal of the step belongs"
        )
    return PromptTexts(f"{settings.score_range:g}", given)


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (SEMANTICS, QUALITY):
        path = folder.expanduser() / f"{name}.txt"
        try:
            yield name, escape_tags(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BackendError(
                f"{path} cannot be read: put the words of the {name} question there, or set "
                "`editscore.prompts` to null"
            ) from error
