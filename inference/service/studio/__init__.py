"""The studio: the page at `/` on which users create stories, watch them and find earlier ones."""
