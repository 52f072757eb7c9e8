"""What users add with `dg scaffold defs`, a folder each (docs/components.md)."""
