"""Our images server: OpenAI's images API in front of a generator's replicas on Ray Serve."""
