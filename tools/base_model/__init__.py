"""How the sketch world's base model was made: a tiny Qwen3-VL learns to describe images."""
