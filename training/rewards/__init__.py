"""What an answer of the critic is worth: rules, a service that draws and scores, its client."""
