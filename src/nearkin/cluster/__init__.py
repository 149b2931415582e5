"""The same work on many machines: embedding into shards, and exact search over them. One machine is the default, with the same answers."""
