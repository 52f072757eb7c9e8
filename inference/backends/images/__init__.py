"""The generator behind an OpenAI-compatible images endpoint: vLLM-Omni, SGLang, our own server."""
