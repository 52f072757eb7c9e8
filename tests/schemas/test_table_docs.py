import re
from contextlib import closing
from pathlib import Path

from schemas import TABLES, VIEWS
from schemas.table_docs import render_table_docs
from warehouse.views import connect

PAGE = Path(__file__).parents[2] / "docs/tables.md"


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


def test_nested_columns_types_and_references_are_listed():
    page = render_table_docs()
    assert "| `messages.role` | string |  | user or assistant |" in page
    assert "| `status` | `complete` \\| `exhausted` \\| `stopped` \\| `quarantined` |" in page
    assert "| `source_image` | string | yes | " in page
    assert "- `prompt_id` → [`prompts`](#prompts) (`prompt_id`)" in page


def test_every_example_runs(home):
    examples = re.findall(r"```sql\n(.*?)\n```", render_table_docs(), re.S)
    assert len(examples) == len(TABLES) + len(VIEWS)
    with closing(connect(home)) as connection:
        for example in examples:
            assert connection.sql(example).to_arrow_table().column_names
