"""The loop as an environment, in which other people's trainers train a critic or a planner."""
