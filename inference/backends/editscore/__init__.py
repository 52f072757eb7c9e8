"""EditScore (arXiv 2509.23909), an open reward model of image edits, as the scorer.

Its two prompts, ratings and grades are described in docs/scorers.md. Ratings are out of
`score_range` (25, as it was trained) and become grades out of 10: `edit_success`, `over_edit`,
`naturalness` and `artifacts`, each the mean over the valid answers of all samples.
"""
