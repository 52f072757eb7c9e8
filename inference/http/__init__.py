"""What our HTTP servers have in common: keys, limits, errors in OpenAI's shape, ports, signals."""
