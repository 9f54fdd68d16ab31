"""Reading disks out of a repository: their content, and image files that have it."""
