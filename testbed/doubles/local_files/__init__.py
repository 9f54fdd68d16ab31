"""Local files without a mount: an image, a file system in memory, and one that dies."""
