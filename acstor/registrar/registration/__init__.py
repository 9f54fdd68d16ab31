"""Registration of an image in a process of its own."""
