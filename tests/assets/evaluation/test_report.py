"""`interleave report --agents`."""

from schemas.training import EVALUATIONS
from tests.assets.evaluation.test_summary import rows
from tests.helpers.command import interleave


def test_the_command_prints_the_agents_and_relations_of_a_home(home, capsys):
    def report():
        return interleave(capsys, "report", "--agents", INTERLEAVE_HOME=home.root)

    nothing = report()
    assert nothing.returncode == 1 and "no values of test items: materialize" in nothing.stderr
    test = {"benchmark": "sketchbook-heldout-test"}
    for variant, count in (("planner_sft", 40), ("full_sft", 70)):
        values = [row.model_copy(update=test) for row in rows(variant, count)]
        home.lake.write(EVALUATIONS, values, variant)
    printed = report().stdout
    assert "100 test requests" in printed and "| + critic, supervised |" in printed
    assert "| planner_sft < full_sft | +8.6 | +0.300 [+0." in printed
    assert printed.count("| not measured |") == 11
