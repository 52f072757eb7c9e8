"""Benchmarks of the field: official files, our judges of their protocols, official metrics."""
