"""Counterfactual replay: another judge looks at recorded attempts again, and nothing is drawn."""
