import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from pydantic import Field, ValidationError

from schemas import TABLES, VIEWS, Row, Table
from schemas.rounds import ROUND_ROWS
from schemas.table_docs import render_table_docs
from schemas.training import EVALUATIONS
from schemas.trajectories import ATTEMPTS
from warehouse.views import connect

PAGE = Path(__file__).parents[2] / "docs/tables.md"


class Part(Row):
    name: str = Field(description="Name of the part")
    weight: float | None = Field(description="Kilograms")


class Thing(Row):
    """A thing with
    parts."""

    thing_id: str = Field(description="Id of the thing")
    kind: Literal["toy", "tool"] = Field(description="Purpose")
    count: int | None = Field(description="How many; null: not counted")
    good: bool = Field(description="Whether it works")
    parts: list[Part] = Field(description="What it is made of")
    made_at: datetime = Field(description="When it was made")


THINGS = Table("things", Thing, key=("thing_id",), version=3)


def test_arrow_types_follow_from_the_row():
    part = pa.struct([pa.field("name", pa.string(), False), pa.field("weight", pa.float64())])
    expected = {
        "thing_id": (pa.string(), False),
        "kind": (pa.string(), False),
        "count": (pa.int64(), True),
        "good": (pa.bool_(), False),
        "parts": (pa.list_(pa.field("item", part, False)), False),
        "made_at": (pa.timestamp("us", tz="UTC"), False),
    }
    assert {f.name: (f.type, f.nullable) for f in THINGS.arrow_schema} == expected
    assert THINGS.description == "A thing with parts."


def test_rows_round_trip_through_arrow():
    thing = Thing(
        thing_id="a",
        kind="toy",
        count=None,
        good=True,
        parts=[Part(name="wheel", weight=None)],
        made_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    for stored in (THINGS.to_arrow([]), THINGS.to_arrow([thing])):
        assert stored.schema.equals(THINGS.arrow_schema, check_metadata=True)
    assert Thing(**stored.to_pylist()[0]) == thing


def test_rows_reject_unknown_columns_and_values():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Part(name="wheel", weight=1.0, colour="red")
    with pytest.raises(ValidationError, match="'toy' or 'tool'"):
        Thing.model_validate({"thing_id": "a", "kind": "weapon"})


def test_types_without_an_arrow_form_are_rejected():
    for annotation in (int | str, dict[str, int], bytes):
        odd = type("Odd", (Row,), {"__annotations__": {"x": annotation}})
        with pytest.raises(TypeError, match="type"):
            _ = Table("odd", odd, key=("x",)).arrow_schema


def test_keys_and_references_name_columns_that_exist():
    for table in TABLES.values():
        assert set(table.key) <= set(table.columns)
        for reference in table.references:
            target = TABLES[reference.table]
            types = [table.arrow_schema.field(name).type for name in reference.columns]
            assert types == [target.arrow_schema.field(name).type for name in reference.target]


def test_sharded_tables_of_prompts_have_a_shard_column():
    """But `evaluations` and `round_rows`, whose partitions are variants and sets of rounds."""
    for table in TABLES.values():
        of_prompts = table.sharded and "prompt_id" in table.columns
        by_shard = of_prompts and table not in (EVALUATIONS, ROUND_ROWS)
        assert not by_shard or "shard" in table.columns
    assert ATTEMPTS.sharded


def test_the_committed_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == render_table_docs(), (
        "run: python -m schemas.table_docs > docs/tables.md"
    )


def test_every_column_of_every_table_is_described():
    page = render_table_docs()
    for table in (*TABLES.values(), *VIEWS.values()):
        section = page.split(f"\n## {table.name}\n")[1].split("\n## ")[0]
        assert table.description in section
        for name, info in table.columns.items():
            assert info.description, f"{table.name}.{name}"
            assert f"\n| `{name}` | " in section


def test_every_example_runs(home):
    examples = re.findall(r"```sql\n(.*?)\n```", render_table_docs(), re.S)
    assert len(examples) == len(TABLES) + len(VIEWS)
    with closing(connect(home)) as connection:
        for example in examples:
            assert connection.sql(example).to_arrow_table().column_names
