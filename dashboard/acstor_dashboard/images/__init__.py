"""Panel of images: where they are cached, for administrators."""
