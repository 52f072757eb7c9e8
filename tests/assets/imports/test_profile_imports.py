"""Section `imports` of a profile: the asset reads its files, again when they have changed."""

import json

from dagster_project.run import run_lineage
from schemas.curation import IMPORTS
from tests.assets.imports.files import planner_sft
from tests.dagster_project.conftest import opened, tiny_foundry


def test_files_of_a_profile_are_read_once_and_when_they_change(tmp_path):
    file = planner_sft(tmp_path)
    plans = {"kind": "planner_sft", "file": str(file), "licence": "cc0-1.0"}
    foundry = tiny_foundry(tmp_path, imports={"plans": plans})
    with opened(foundry) as instance:

        def materialized():
            return run_lineage(foundry, instance, 1, ["imports"]).materialized

        assert materialized() == ["imports"]
        rows = foundry.rows(IMPORTS, "plans")
        assert [row.number for row in rows] == [1, 2]
        assert {(row.source, row.licence) for row in rows} == {(file.name, "cc0-1.0")}
        assert materialized() == []
        file.write_text(json.dumps(json.loads(file.read_text())[:1]))
        assert materialized() == ["imports"]
        assert [row.number for row in foundry.rows(IMPORTS, "plans")] == [1]
