"""An open reward model of picture edits as the scorer, in this process: EditScore.

EditScore (arXiv 2509.23909) is Qwen2.5-VL or Qwen3-VL with low-rank weights. It is asked two
questions about an edit and answers each with a sentence of reasoning and two marks, which are
exactly the four grades of our scorer:

| question | pictures | marks, in this order |
|---|---|---|
| semantics | before, after | `edit_success`, `over_edit` (10: nothing else changed) |
| quality | after | `naturalness`, `artifacts` (10: none) |

Marks are out of `score_range` (25, as it was trained) and become grades out of 10. Both questions
are asked `samples` times; a grade is the mean over the answers that can be read. Semantics and
quality are the lower of their two means, where the authors' code takes the mean of the lower ones:
with one sample both are the same.

The wording that EditScore was trained with is its authors' and not part of this project.
`editscore.prompts` names a folder that holds it; without one it is asked in our own words
(agent prompts `editscore-semantics` and `editscore-quality`), which it was not trained on.
"""
