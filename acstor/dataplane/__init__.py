"""The data-plane process: everything of it that is Python, around the Rust runtime."""
