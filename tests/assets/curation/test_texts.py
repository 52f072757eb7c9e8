"""Texts as SQL: what the functions of `inference.agent_prompts` return, whatever the text."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.curation.shards import text_session
from assets.curation.texts import add_critic_question, planner_question_sql
from inference.agent_prompts.formatting import critic_answer, planner_answer, verdict_json
from inference.agent_prompts.templates import critic_prompt, insert_image_tags, planner_prompt
from inference.roles import Plan, PlanStep, Verdict

# NUL and surrogates are not storable text; the pieces are what Python writes in place of DuckDB.
PIECES = st.sampled_from(
    ["<image>", "<IMAGE>", "</thin\u212a>", "<", '"', "\\u000B", "\x1f", "\n "]
)
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
TEXTS = st.lists(PIECES | st.text(LETTERS, max_size=5), max_size=4).map("".join)
OWN = {
    "inserts": "Goal {{ original_instruction }}|{% if rewritten_prompt %}'{{ rewritten_prompt }}'"
    "{% endif %}{{ original_instruction }}\n",
    "filters": "Goal {{ original_instruction | upper }}|{{ rewritten_prompt }}\n",
    "within": "{% filter upper %}{{ original_instruction }}{% endfilter %} {{ rewritten_prompt }}",
    "compares": "{{ rewritten_prompt }}{% if original_instruction == '<' %} less{% endif %}.",
}


def in_sql(sql: str, rows: list[tuple], prepare: Callable = lambda connection: None) -> list:
    """A query for each row, over its values in `a`, `b` and so on."""
    connection = text_session()
    prepare(connection)
    names = ", ".join("abcd"[: len(rows[0])])
    return [
        connection.execute(
            f"SELECT {sql} FROM (VALUES ({', '.join('?' for _ in row)})) AS given({names})", [*row]
        ).fetchall()[0][0]
        for row in rows
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans(), st.integers(0, 3)), min_size=1))
def test_answers_and_tags(rows):
    def expected(function):
        return [function(*row) for row in rows]

    assert in_sql("critic_answer(c, a, b)", rows) == expected(
        lambda a, b, c, d: critic_answer(Verdict(c, a, b))
    )
    assert in_sql("verdict_json('success', c, a)", rows) == expected(
        lambda a, b, c, d: verdict_json(Verdict(c, a, b), "success")
    )
    assert in_sql("insert_image_tags(a, d)", rows) == expected(
        lambda a, b, c, d: insert_image_tags(a, d)
    )
    assert in_sql("planner_answer(b, plan_step(d, a, nullif(b, ''), a, NULL))", rows) == expected(
        lambda a, b, c, d: planner_answer(Plan((PlanStep(d, a, b or None, a),), b))
    )


@pytest.mark.parametrize("name", ["critic", *OWN])
@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1))
def test_questions_to_the_critic(tmp_path_factory, name, rows):
    if name in OWN:
        file = tmp_path_factory.getbasetemp() / f"{name}.jinja"
        file.write_text(OWN[name])
        name = str(file)
    asked = in_sql("critic_question(a, b)", rows, lambda it: add_critic_question(it, name))
    assert asked == [critic_prompt(goal, rewritten, name).text for goal, rewritten in rows]


@pytest.mark.parametrize(
    "name", ["planner-text", "planner-text@1", "planner-interleaved", "planner-interleaved@1"]
)
@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, st.integers(0, 3)), min_size=1))
def test_questions_to_the_planner(name, rows):
    sql = f"(SELECT {planner_question_sql(name, [0, 1, 2])} FROM (SELECT a AS request, b AS cut))"
    assert in_sql(sql, rows) == [planner_prompt(text, name, cut).text for text, cut in rows]
