"""`interleave reviews`: how much people have reviewed, and how far they agree with the models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .options import HomeOption, ProfileOption

if TYPE_CHECKING:
    from rich.table import Table


def reviews(profile: ProfileOption = "sketch", home: HomeOption = ".interleave") -> None:
    """Show how much of every shard people have reviewed, and how far critic, scorer and people
    agree; the page Review of `interleave serve` is where they review (docs/reviews.md)."""
    from rich.console import Console

    from assets.core.profile import load_profile
    from assets.reviews.assets import agreement_rows, shard_labels, shard_shares, shares_table
    from warehouse import Home

    settings, lake = load_profile(profile).curation, Home(home)
    share = settings.reviews.share if settings.reviews else 0.0
    console = Console(highlight=False, soft_wrap=True)
    shares = shard_shares(lake)
    if not shares:
        console.print("there are no attempts yet: `interleave run` makes some")
        return
    console.print(_grid(shares_table(shares, share)))
    labels = shard_labels(lake, None, settings.critic.verdicts.accept_at_least)
    console.print(_grid(agreement_rows(labels)))


def _grid(rows: Sequence[Mapping[str, object]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None)
    for name in rows[0]:
        grid.add_column(Text(name))
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row.values()))
    return grid
