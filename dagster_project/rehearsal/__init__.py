"""`interleave rehearse`: a profile's whole lineage with tiny models, before it is paid for."""
