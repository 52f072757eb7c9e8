"""Models behind an API: endpoints that are shared fairly, prices, budgets, structured answers."""
