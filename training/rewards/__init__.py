"""Rewards of an agent's answers: formulas, a service that draws, scores and grades, its client."""
