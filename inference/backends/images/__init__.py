"""The generator behind an images API: dialects of servers, and the limits that they tell."""
