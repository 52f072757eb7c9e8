"""What a conversation comes to: one text with a place for each picture, and the pictures.

The planner answers one request, not a conversation: what came before the last answer is not read
again, and of that answer its last picture stands for it, from which the story goes on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..agent_prompts.templates import IMAGE, escape_tags

Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True)
class ImageRef:
    """A picture by its address: a data URI, or http(s). `param`: the request's name for it."""

    url: str
    param: str


Piece = str | ImageRef


@dataclass(frozen=True)
class ConversationTurn:
    """What one side said."""

    role: Role
    pieces: tuple[Piece, ...]


def current_turn(turns: Sequence[ConversationTurn]) -> list[Piece]:
    """Instructions, the last answer's last picture, and what was said since."""
    answered = max((n for n, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    standing = _pieces(turn for turn in turns if turn.role in ("system", "developer"))
    shown = [each for each in _pieces(turns[: answered + 1], "assistant") if _is_sight(each)]
    return [*standing, *shown[-1:], *_pieces(turns[answered + 1 :], "user")]


def composed(pieces: Sequence[Piece], given: int = 0) -> str:
    """The text, with a placeholder for every picture.

    Where it has as many placeholders of its own as there are pictures, they count.

    Args:
        given: pictures that stand before all of them.
    """
    words = [piece.strip() for piece in pieces if isinstance(piece, str)]
    pictures = given + sum(map(_is_sight, pieces))
    text = "\n".join(filter(None, words))
    if not pictures or text.count(IMAGE) == pictures:
        return text
    told = [
        IMAGE if isinstance(piece, ImageRef) else escape_tags(piece).strip() for piece in pieces
    ]
    return "\n".join(filter(None, [*[IMAGE] * given, *told]))


def _pieces(turns: Iterable[ConversationTurn], role: Role | None = None) -> list[Piece]:
    return [piece for turn in turns if role in (None, turn.role) for piece in turn.pieces]


def _is_sight(piece: Piece) -> bool:
    return isinstance(piece, ImageRef)
