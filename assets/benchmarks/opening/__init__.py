"""OpenING (Zhou et al. 2024): open-ended interleaved generation, 56 tasks of 23 topics."""
