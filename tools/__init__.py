"""Programs that made parts of the project; nothing of the product imports them."""
