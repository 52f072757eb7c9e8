"""The page at `/`: tell stories, watch them come about, look up earlier ones."""
