"""Rows as tables of the Dagster UI."""

from assets.core.metadata import table_metadata


def test_rows_with_other_columns_are_shown():
    """Such as what breaks references to two tables."""
    rows = [{"pack": "a", "subcategory": "x|y"}, {"pack": "a", "template_id": "t"}]
    lines = table_metadata(rows).value.splitlines()
    assert lines[0] == "| pack | subcategory | template_id |"
    assert lines[2:] == ["| a | x\\|y |  |", "| a |  | t |"]
