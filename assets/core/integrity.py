"""Rules about the lake's tables, as functions that return the rows that violate them.

Each returns at most `MAX_ROWS` rows as dictionaries (damaged images: all); none: the rule holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from schemas import TABLES, BadImageError, Table
from warehouse import ImageStore, Lake

Violations = list[dict[str, object]]
MAX_ROWS = 5


def duplicate_keys(table: Table, data: pa.Table) -> Violations:
    """Keys of more than one row."""
    key = ", ".join(table.key)
    return _rows(
        f"select {key}, count(*) as copies from data group by all having count(*) > 1", data=data
    )


def dangling_references(table: Table, data: pa.Table, lake: Lake, shard: str | None) -> Violations:
    """References to rows that do not exist."""
    violations: Violations = []
    for reference in table.references:
        parent = TABLES[reference.table]
        partitions = [shard] if shard and parent.sharded else None
        parents = lake.read(parent, partitions, columns=list(reference.target))
        match = " and ".join(
            f"child.{c} = parent.{t}"
            for c, t in zip(reference.columns, reference.target, strict=True)
        )
        present = " and ".join(f"child.{c} is not null" for c in reference.columns)
        columns = ", ".join(f"child.{c}" for c in reference.columns)
        query = (
            f"select distinct '{parent.name}' as missing_in, {columns} from data child "
            f"anti join parents parent on {match} where {present}"
        )
        violations += _rows(query, data=data, parents=parents)
    return violations


def damaged_images(images: ImageStore, names: Iterable[str]) -> Violations:
    """Images that are not in the store, or whose bytes do not hash to their name."""
    violations: Violations = []
    for name in sorted(set(names)):
        try:
            images.get(name)
        except BadImageError as error:
            violations.append({"image": name, "problem": str(error)})
    return violations


def missing_images(images: ImageStore, names: Iterable[str]) -> Violations:
    """Images that are not in the store."""
    missing = (name for name in sorted(set(names)) if not images.exists(name))
    return [{"image": name} for name in islice(missing, MAX_ROWS)]


def distinct_strings(data: pa.Table) -> Iterator[str]:
    """Strings in string and list-of-string columns, without nulls; distinct per column."""
    for column in data.columns:
        flat = pc.list_flatten(column) if pa.types.is_list(column.type) else column
        yield from set(flat.drop_null().to_pylist())


def mismatched_placeholders(data: pa.Table, images: str = "images") -> Violations:
    """Rows whose messages have another number of `<image>` than the row has images.

    Args:
        images: SQL expression of a row's list of images.
    """
    query = f"""
        select row_id, image_count, placeholders from (
            select row_id, len({images}) as image_count, list_sum(list_transform(
                messages, lambda m: len(regexp_extract_all(m.content, '<image>')))) as placeholders
            from data)
        where image_count != placeholders
    """
    return _rows(query, data=data)


def unbalanced_verdicts(
    data: pa.Table, verdict: str, tolerance: float, one_sided: bool = False
) -> Violations:
    """Iterations whose share of accepting verdicts differs from 1/2 by more than `tolerance`.

    A difference of one row is always allowed: an odd number cannot be halved.

    Args:
        verdict: SQL expression of a row's verdict.
        one_sided: whether iterations with only one kind of verdict are allowed.
    """
    exempt = "share in (0, 1)" if one_sided else "false"
    query = f"""
        select iteration, share, samples from (
            select iteration, avg(({verdict})::int) as share, count(*) as samples
            from data group by iteration)
        where abs(share - 0.5) > greatest({tolerance}, 0.5 / samples) and not {exempt}
    """
    return _rows(query, data=data)


def leaking_prompts(prompts: pa.Table) -> Violations:
    """Held-out templates, sub-categories or term combinations that split `train` also has."""
    query = """
        with train as (select * from data where split = 'train')
        select pack, 'template' as what, template_id as which from data
            where split = 'heldout' and (pack, template_id) in (select pack, template_id from train)
        union select pack, 'terms', array_to_string(terms, ', ') from data
            where split = 'heldout' and len(terms) > 1
            and (pack, list_sort(terms)) in (select pack, list_sort(terms) from train)
        union select pack, 'subcategory', subcategory from data
            where split = 'heldout_category'
            and (pack, subcategory) in (select pack, subcategory from train)
    """
    return _rows(f"select * from ({query})", data=prompts)


def repeated_texts(prompts: pa.Table) -> Violations:
    """Texts of more than one prompt of a pack."""
    query = "select pack, text, count(*) as copies from data group by all having count(*) > 1"
    return _rows(query, data=prompts)


def shared_prompts(sets: Sequence[tuple[str, pa.Table]]) -> Violations:
    """Prompts that occur in more than one of the named sets."""
    tables = {f"set_{i}": data.select(["prompt_id"]) for i, (_, data) in enumerate(sets)}
    union = " union all ".join(
        f"select distinct prompt_id, '{name}' as set_name from set_{i} where prompt_id is not null"
        for i, (name, _) in enumerate(sets)
    )
    query = (
        f"select prompt_id, list(set_name order by set_name) as sets from ({union}) "
        "group by prompt_id having count(*) > 1"
    )
    return _rows(query, **tables)


def _rows(query: str, **tables: pa.Table) -> Violations:
    connection = duckdb.connect()
    for name, data in tables.items():
        connection.register(name, data)
    return connection.sql(f"{query} order by all limit {MAX_ROWS}").to_arrow_table().to_pylist()
