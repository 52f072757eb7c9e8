"""Reviews on disk: journal first, then the table; one writer at a time."""

import multiprocessing
from datetime import UTC, datetime, timedelta

import pytest

from inference import review_log
from inference.review_log import add_review, current_reviews, restore_reviews
from schemas import StorageError
from schemas.trajectories import REVIEWS, ReviewRow
from warehouse import Home

SHARD = "toy-0000"


def review(name, **more) -> ReviewRow:
    fields = {
        "review_id": name,
        "shard": SHARD,
        "prompt_id": "p",
        "trajectory_id": "t",
        "step_number": 1,
        "iteration": 0,
        "image": "0" * 64,
        "critic": "eye",
        "critic_accepted": True,
        "reviewer": "ann",
        "reviewed_at": datetime.now(UTC),
        "kind": "verdict",
        "agrees": True,
        "accepted": True,
    }
    return ReviewRow(**fields | more)


def test_a_table_that_cannot_be_written_loses_no_review(tmp_path, monkeypatch):
    home = Home(str(tmp_path))
    add_review(home, review("one"))

    def full(*_args):
        raise StorageError("no space left on the device")

    with monkeypatch.context() as patch:
        patch.setattr(type(home.lake), "write", full)
        with pytest.raises(StorageError, match="no space left"):
            add_review(home, review("two"))
    assert home.lake.rows(REVIEWS, SHARD) == 1
    assert restore_reviews(home) == {SHARD: 2}
    assert restore_reviews(Home(str(tmp_path / "empty"))) == {}


def test_the_newest_counts_also_where_the_clock_was_set_back(tmp_path, monkeypatch):
    home = Home(str(tmp_path))
    first = add_review(home, review("one"))

    class Earlier(datetime):
        @classmethod
        def now(cls, _tz=None):
            return first.reviewed_at - timedelta(hours=1)

    monkeypatch.setattr(review_log, "datetime", Earlier)
    add_review(home, review("two", accepted=False, agrees=False))
    (current,) = current_reviews(home, SHARD).to_pylist()
    assert current["review_id"] == "two"


def add_some(root, names):
    for name in names:
        add_review(Home(root), review(name, reviewer=name))


@pytest.mark.long
def test_several_processes_write_in_turn(tmp_path):
    context = multiprocessing.get_context("spawn")
    names = [[f"{process}-{number}" for number in range(10)] for process in range(3)]
    processes = [context.Process(target=add_some, args=(str(tmp_path), each)) for each in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert current_reviews(Home(str(tmp_path)), SHARD).num_rows == 30
