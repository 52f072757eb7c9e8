"""Python functions called from SQL."""

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.core.duckdb_session import add_text_function
from inference.agent_prompts.formatting import critic_answer
from inference.roles import Verdict

# NUL and surrogates are not storable text.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


def answer(accepted: bool, refined: str) -> str:
    return critic_answer(Verdict(accepted, refined, ""))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), TEXTS | st.none()), min_size=1))
def test_a_text_function_returns_what_python_returns_and_null_for_null(rows):
    connection = duckdb.connect()
    add_text_function(connection, answer)
    connection.execute("CREATE TABLE verdicts (number INTEGER, accepted BOOLEAN, refined VARCHAR)")
    connection.executemany(
        "INSERT INTO verdicts VALUES (?, ?, ?)", [(n, *row) for n, row in enumerate(rows)]
    )
    result = connection.execute("SELECT answer(accepted, refined) FROM verdicts ORDER BY number")
    expected = [
        None if refined is None else answer(accepted, refined) for accepted, refined in rows
    ]
    assert [text for (text,) in result.fetchall()] == expected
