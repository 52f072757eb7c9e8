"""Reviews of people, appended to a journal for each shard; the table `reviews` is its content.

A review is in the journal before it is in the table. Where a process was killed in between, or the
table's partition was lost, `restore_reviews` writes it again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from schemas import StorageError
from schemas.trajectories import REVIEWED_THING, REVIEWS, ReviewRow
from warehouse import Home
from warehouse.home import AnyJournal

USER_REQUESTS = "requests-"
"""Prefix of the shards of users' requests, whose texts only their users may read: no reviews."""

_JOURNAL = "reviews"
_BUSY_SECONDS = 30.0  # how long another process may write the same journal
_TICK = timedelta(microseconds=1)

CURRENT_REVIEWS = f"""
    SELECT * EXCLUDE (newest_first) FROM (
        SELECT *, row_number() OVER (
            PARTITION BY {", ".join(REVIEWED_THING)} ORDER BY reviewed_at DESC, review_id
        ) AS newest_first FROM reviews)
    WHERE newest_first = 1 AND NOT withdrawn
"""
"""SQL: the rows of `reviews` that count, see `ReviewRow`."""


def add_review(home: Home, review: ReviewRow) -> ReviewRow:
    """Store a review, which gets the time of now; it is on disk when this returns.

    Raises:
        StorageError: another process writes the shard's reviews, or they cannot be written.
    """
    with _locked_journal(home, review.shard) as journal:
        rows = _rows(journal)
        # Later than all before, also where the clock was set back: the newest counts.
        earliest = max((row.reviewed_at for row in rows), default=datetime.min.replace(tzinfo=UTC))
        reviewed_at = max(datetime.now(UTC), earliest + _TICK)
        stored = review.model_copy(update={"reviewed_at": reviewed_at})
        journal.append(stored.model_dump(mode="json"))
        home.lake.write(REVIEWS, [*rows, stored], review.shard)
    return stored


def restore_reviews(home: Home) -> dict[str, int]:
    """Make the table what the journals say; returns the number of rows by shard.

    Raises:
        StorageError: a journal or a partition cannot be read or written.
    """
    counts: dict[str, int] = {}
    for shard in home.journals(_JOURNAL):
        with _locked_journal(home, shard) as journal:
            counts[shard] = home.lake.write(REVIEWS, _rows(journal), shard).rows
    return counts


def current_reviews(home: Home, shard: str) -> pa.Table:
    """The reviews of a shard that count, with the columns of the table."""
    rows = home.lake.read(REVIEWS, [shard])
    with duckdb.connect() as connection:
        connection.register("reviews", rows)
        found = connection.sql(CURRENT_REVIEWS).to_arrow_table()
    return found.select(REVIEWS.arrow_schema.names).cast(REVIEWS.arrow_schema)


def _rows(journal: AnyJournal) -> list[ReviewRow]:
    return [ReviewRow.model_validate(record) for record in journal.records()]


@contextmanager
def _locked_journal(home: Home, shard: str) -> Iterator[AnyJournal]:
    """A shard's journal, which no other process or thread writes meanwhile."""
    journal = home.journal(_JOURNAL, shard)
    retrying = Retrying(
        retry=retry_if_exception_type(StorageError),
        stop=stop_after_delay(_BUSY_SECONDS),
        wait=wait_random(0.01, 0.05),
        reraise=True,
    )
    retrying(journal.__enter__)
    try:
        yield journal
    finally:
        journal.close()
