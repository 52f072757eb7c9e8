"""The loop as a service: OpenAI's Responses and chat APIs in front of the teller."""
