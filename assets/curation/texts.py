"""The texts of training rows as SQL: macros equal to the functions of `inference.agent_prompts`.

DuckDB writes them a hundred times faster than Python, which is only called for what is rare: texts
with a `<`, which may be a tag, control characters in JSON, and prompts of templates that do more
with a text than to insert it. As of those functions, the result is NULL where an argument is.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import chain

import duckdb

from inference.agent_prompts.formatting import BLANKS, PLAN_KEY, REFINE_KEY, SUCCESS_KEY
from inference.agent_prompts.templates import (
    IMAGE,
    critic_prompt,
    escape_tags,
    insert_image_tags,
    inserts_as_is,
    planner_prompt,
    render,
    version_of,
)

from ..core.duckdb_session import add_text_function

_MARK = "\ue000"  # around the name of a text where a prompt inserts it
_MACROS = rf"""
    CREATE MACRO escape_tags(text) AS
        CASE WHEN contains(text, '<') THEN python_escape_tags(text) ELSE text END;
    CREATE MACRO insert_image_tags(text, number) AS
        CASE WHEN contains(text, '<') THEN python_insert_image_tags(text, number)
             ELSE repeat('{IMAGE}', number) || text END;
    CREATE MACRO json_text(text) AS
        CASE WHEN contains(CAST(to_json(text) AS VARCHAR), '\u') THEN python_json_text(text)
             ELSE CAST(to_json(text) AS VARCHAR) END;
    CREATE MACRO trimmed(text) AS
        CASE WHEN contains('{BLANKS}', text[1]) OR contains('{BLANKS}', text[-1])
             THEN trim(text, '{BLANKS}') ELSE text END;
    CREATE MACRO verdict_json(success_key, accepted, refined) AS
        '{{"' || success_key || '": ' || accepted || ', "{REFINE_KEY}": '
        || CASE WHEN accepted THEN '""' ELSE json_text(escape_tags(refined)) END || '}}';
    CREATE MACRO agent_answer(reasoning, content) AS
        '<think>' || trimmed(escape_tags(reasoning)) || '</think>
<answer>' || content || '</answer>';
    CREATE MACRO critic_answer(accepted, refined, reasoning) AS
        agent_answer(reasoning, verdict_json('{SUCCESS_KEY}', accepted, refined));
    CREATE MACRO json_or_null(text) AS coalesce(json_text(escape_tags(text)), 'null');
    CREATE MACRO plan_step(step_number, step_name, instruction, prompt, auxiliary_text) AS
        '{{"step_number": ' || step_number || ', "step_name": ' || json_or_null(step_name)
        || ', "instruction": ' || json_or_null(instruction) || ', "prompt": '
        || json_or_null(prompt) || ', "auxiliary_text": ' || json_or_null(auxiliary_text) || '}}';
    CREATE MACRO planner_answer(reasoning, steps) AS
        agent_answer(reasoning, '{{"{PLAN_KEY}": [' || steps || ']}}');
"""


def add_texts(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros `escape_tags`, `insert_image_tags`, `verdict_json`, `critic_answer`,
    `plan_step` and `planner_answer` (of plan steps, joined by commas)."""

    def python_escape_tags(text: str) -> str:
        return escape_tags(text)

    def python_insert_image_tags(text: str, number: int) -> str:
        return insert_image_tags(text, number)

    def python_json_text(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def python_critic_question(goal: str, rewritten: str, agent_prompt: str) -> str:
        return critic_prompt(goal, rewritten, agent_prompt).text

    def python_planner_question(request: str, agent_prompt: str, cut: int) -> str:
        return planner_prompt(request, agent_prompt, cut).text

    add_text_function(connection, python_escape_tags)
    add_text_function(connection, python_insert_image_tags)
    add_text_function(connection, python_json_text)
    add_text_function(connection, python_critic_question)
    add_text_function(connection, python_planner_question)
    connection.execute(_MACROS)


def add_critic_question(connection: duckdb.DuckDBPyConnection, agent_prompt: str) -> str:
    """Create the macro `critic_question(goal, rewritten)`; returns SQL of the prompt's version."""
    asked = f"python_critic_question(goal, rewritten, {literal(agent_prompt)})"
    goal = {"original_instruction": "escape_tags(goal)"}
    both = goal | {"rewritten_prompt": "escape_tags(rewritten)"}
    connection.execute(
        f"""
        CREATE TEMP MACRO critic_question(goal, rewritten) AS
        CASE WHEN (goal <> '' AND rewritten IS NOT NULL) IS NOT TRUE THEN {asked}
             WHEN rewritten = '' THEN {_prompt_sql(agent_prompt, asked, goal, rewritten_prompt="")}
             ELSE {_prompt_sql(agent_prompt, asked, both)} END
        """
    )
    return f"{literal(version_of(agent_prompt))} AS agent_prompt_version"


def planner_question_sql(agent_prompt: str, cuts: Iterable[int]) -> str:
    """SQL of `planner_prompt` over columns `request` and `cut`, which mostly is one of `cuts`."""
    asked = f"python_planner_question(request, {literal(agent_prompt)}, cut)"
    request = {"request": "request"}
    cases = "".join(
        f" WHEN {cut} THEN {_prompt_sql(agent_prompt, asked, request, steps_given=cut)}"
        for cut in cuts
    )
    return f"CASE WHEN request = '' THEN {asked} ELSE CASE cut{cases} ELSE {asked} END END"


def _prompt_sql(name: str, otherwise: str, texts: Mapping[str, str], **values: object) -> str:
    """SQL of a rendered prompt, into which texts (SQL, not empty) are inserted; `otherwise`, where
    the prompt does more with them."""
    if not inserts_as_is(name, *texts):
        return otherwise
    marked = {text: f"{_MARK}{text}{_MARK}" for text in texts}
    parts = render(name, **marked, **values).text.split(_MARK)
    if not (parts[0] and parts[-1]):  # a rendered prompt is stripped
        return otherwise
    literals = map(literal, parts[::2])
    inserted = [*(texts[part] for part in parts[1::2]), "''"]
    return f"concat({', '.join(chain.from_iterable(zip(literals, inserted, strict=True)))})"


def literal(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"
