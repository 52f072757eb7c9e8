"""The base model of the sketch world: a tiny Qwen3-VL pretrained to describe images."""
