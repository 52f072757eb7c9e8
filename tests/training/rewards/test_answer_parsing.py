"""Answers of the policy, well-formed, sloppy and malformed."""

from hypothesis import given
from hypothesis import strategies as st

from inference.agent_prompts.formatting import critic_answer
from inference.roles import Verdict
from training.rewards.reward import ParsedAnswer, parse_answer

BODY = '{"previous_step_success": false, "refine_prompt": "a red cat"}'
PARSED = ParsedAnswer(False, "a red cat")


def test_sloppy_answers_are_parsed():
    cases = [
        f"<think>the cat is blue</think>\n<answer>{BODY}</answer>",
        f"<answer>{BODY}</answer>",
        f"the cat is blue</think><answer>{BODY}</answer>",
        f"<think>I <answer>maybe</answer> so</think><answer>{BODY}</answer>",
        f"< think >hm< / think > < answer > {BODY} < / answer >",
        f"<answer>```json\n{BODY}\n```</answer>",
        f"<answer>{BODY}</answer> and some more",
        "<answer>{'previous_step_success': False, 'refine_prompt': 'a red cat',}</answer>",
        '<answer>{"refine_prompt": "a red cat", "previous_step_success": false</answer>',
        f"<answer>{BODY[:-1]}, " + '"why": "blue"}</answer>',
        '<answer>{"previous_step_success": false, "refine_prompt": " a red cat "}</answer>',
    ]
    for text in cases:
        assert parse_answer(text) == PARSED


def test_malformed_answers_are_none():
    cases = [
        "",
        BODY,
        "<answer></answer>",
        f"<answer>{BODY}",
        f"<think>hm</think>\n<answer>{BODY}</answe",
        "<answer>false</answer>",
        "<answer>[]</answer>",
        f"<answer>[{BODY}]</answer>",
        '<answer>{"previous_step_success": "false", "refine_prompt": "x"}</answer>',
        '<answer>{"previous_step_success": 0, "refine_prompt": "x"}</answer>',
        '<answer>{"previous_step_success": false, "refine_prompt": null}</answer>',
        '<answer>{"previous_step_success": false}</answer>',
        '<answer>{"refine_prompt": "x"}</answer>',
        f"<answer>{BODY}</answer></think>",
        "<answer>" + "[" * 5000 + "</answer>",
        "<answer>" + '{"a":' * 5000 + "</answer>",
        "<answer>" + "9" * 5000 + "</answer>",
    ]
    for text in cases:
        assert parse_answer(text) is None


def test_white_space_around_brackets_and_slashes_is_removed_from_the_prompt_too():
    text = '<answer>{"previous_step_success": false, "refine_prompt": "a cat / dog"}</answer>'
    assert parse_answer(text) == ParsedAnswer(False, "a cat/dog")


@given(st.booleans(), st.text("abc \n\"'{}[],.:äπ猫", max_size=40), st.text(max_size=40))
def test_answers_of_our_formatter_are_parsed(accepted, prompt, reasoning):
    text = critic_answer(Verdict(accepted, prompt, reasoning))
    assert parse_answer(text) == ParsedAnswer(accepted, "" if accepted else prompt.strip())


@given(st.text(), st.text("<>/answer{}[]\"':,truefals previous_step_success refine_prompt"))
def test_parsing_never_raises(noise, likely):
    for text in (noise, f"<answer>{noise}</answer>", f"<answer>{likely}</answer>"):
        answer = parse_answer(text)
        assert answer is None or isinstance(answer, ParsedAnswer)
