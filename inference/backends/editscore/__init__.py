"""EditScore, an open reward model of image edits, as the scorer, in this process.

EditScore (arXiv 2509.23909) is Qwen2.5-VL or Qwen3-VL with low-rank weights. It gets two
prompts about an edit and answers each with a sentence of reasoning and two ratings, which are
exactly the four grades of our scorer:

| prompt | images | ratings, in this order |
|---|---|---|
| semantics | before, after | `edit_success`, `over_edit` (10: nothing else changed) |
| quality | after | `naturalness`, `artifacts` (10: none) |

Ratings are out of `score_range` (25, as it was trained) and become grades out of 10. Each prompt is
answered `samples` times; a grade is the mean over the valid answers. Semantics and quality are the
lower of their two means, where the authors' code takes the mean of the lower ones: with one sample
both are the same.

The prompts that EditScore was trained with are its authors' and not part of this project.
`editscore.prompts` names a folder with them; without one it gets our own (agent prompts
`editscore-semantics` and `editscore-quality`), which it was not trained on.
"""
