"""Images in the origin: registration, verification, removal, garbage collection."""
