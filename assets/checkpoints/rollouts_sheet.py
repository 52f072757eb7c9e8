"""The last rollouts of a GRPO training whose prompts were drawn, as one picture."""

import textwrap
from collections.abc import Sequence

from schemas.curation import CRITIC_RL
from schemas.training import RolloutRow
from warehouse import Home

from ..core.plotting import figure_png, new_figure

_ROLLOUTS = 6
_WIDTH = 46  # characters of a line of a prompt
_LINES = 5


def rollouts_sheet(home: Home, rollouts: Sequence[RolloutRow]) -> bytes | None:
    """A row for each of the last rollouts whose prompt was drawn, as a PNG; None without one.

    `home`: of the rows that were trained on.
    """
    drawn = [row for row in rollouts if row.image][-_ROLLOUTS:]
    if not drawn:
        return None
    columns = ["row_id", "edited_image"]
    rows = home.lake.read(CRITIC_RL, columns=columns).to_pylist()
    judged = {row["row_id"]: row["edited_image"] for row in rows}
    panels = new_figure(1.6 * len(drawn), columns=3, rows=[1] * len(drawn))
    with panels as (figure, axes):
        for row, (before, after, words) in zip(drawn, axes.reshape(-1, 3), strict=True):
            for panel, image in ((before, judged.get(row.row_id)), (after, row.image)):
                if image and home.images.exists(image):
                    panel.imshow(home.images.get(image).image)
            words.text(0, 1, _caption(row), va="top", fontsize=8, transform=words.transAxes)
            for panel in (before, after, words):
                panel.set_axis_off()
        axes.reshape(-1, 3)[0][0].set_title("judged", fontsize=9)
        axes.reshape(-1, 3)[0][1].set_title("drawn again", fontsize=9)
        return figure_png(figure)


def _caption(row: RolloutRow) -> str:
    verdict = "accepted" if row.verdict else "rejected"
    right = "right" if row.verdict == row.truth else "wrong"
    reward = "no reward" if row.reward is None else f"reward {row.reward:.2f}"
    prompt = textwrap.wrap(row.refined_prompt or "(the prompt before)", _WIDTH)
    return "\n".join([f"step {row.step}: {verdict} ({right}), {reward}", *prompt[:_LINES]])
