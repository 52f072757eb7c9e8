"""The loop's one door for users' requests: asset, command line and service are its listeners."""
