"""Parts that the benchmarks on the one-box share: cold images, servers, the clock of a boot."""
