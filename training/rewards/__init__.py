"""Rewards of the critic's answers: formulas, a service that redraws and scores, its client."""
