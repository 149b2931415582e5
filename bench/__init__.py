"""Side-by-side benchmarks against peers: same work, same machine, interleaved, best of several."""
