"""Panel of origins: the stores that images are in, for administrators."""
