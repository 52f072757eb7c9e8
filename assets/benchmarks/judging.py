"""What a benchmark asks a judge about an answer, whatever the benchmark."""

from dataclasses import dataclass

from warehouse import EncodedImage


@dataclass(frozen=True)
class JudgeCall:
    """One question to a judge.

    Args:
        name: what is judged, unique for an item, such as `reasoning` or `text-3`.
        text: the question, with everything that is to be read.
        images: what is to be seen, in the order in which the text names them.
    """

    name: str
    text: str
    images: tuple[EncodedImage, ...] = ()
