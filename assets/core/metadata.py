"""What Dagster shows of a materialization: column schemas, tables, images, and what calls cost.

Dagster stores metadata in its database and renders Markdown: images are embedded there.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from schemas import Table
from schemas.trajectories import ModelCallRow


def column_schema(table: Table) -> dg.TableSchema:
    columns = [
        dg.TableColumn(
            field.name,
            str(field.type),
            table.columns[field.name].description,
            dg.TableColumnConstraints(field.nullable, unique=table.key == (field.name,)),
        )
        for field in table.arrow_schema
    ]
    return dg.TableSchema(columns)


def table_metadata(rows: Sequence[Mapping[str, object]]) -> dg.MetadataValue:
    """Rows as a Markdown table; a column that a row does not have is empty."""
    if not rows:
        return dg.MetadataValue.md("*no rows*")
    header = list(dict.fromkeys(column for row in rows for column in row))
    cells = [
        [str(row.get(c, "")).replace("|", "\\|").replace("\n", " ") for c in header] for row in rows
    ]
    lines = [header, ["---"] * len(header), *cells]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def markdown_section(title: str, key: str, value: str, rows: Mapping[str, Any]) -> str:
    """A Markdown section with a table of two columns, headed `key` and `value`."""
    lines = [f"## {title}", "", f"| {key} | {value} |", "| --- | --- |"]
    lines += [f"| {name} | {'' if cell is None else cell} |" for name, cell in rows.items()]
    return "\n".join([*lines, ""])


def image_metadata(png: bytes, alt: str) -> dg.MetadataValue:
    """A Markdown image with its bytes as a data URL."""
    alt = " ".join(alt.replace("[", "(").replace("]", ")").split())
    return dg.MetadataValue.md(f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})")


def model_call_costs(calls: Sequence[ModelCallRow]) -> dict[str, Any]:
    """A row per role: number of calls, retries and errors, seconds and US dollars."""
    costs = [
        {
            "role": role,
            "calls": len(own),
            "retries": sum(call.retries for call in own),
            "errors": sum(call.error is not None for call in own),
            "seconds": round(sum(call.seconds for call in own), 2),
            "cost_usd": round(sum(call.cost_usd or 0 for call in own), 4),
        }
        for role in sorted({call.role for call in calls})
        if (own := [call for call in calls if call.role == role])
    ]
    return {"model_calls": table_metadata(costs)}
