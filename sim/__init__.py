"""The data-centre simulator: flows under max-min fair sharing, the real ring, the real policy."""
