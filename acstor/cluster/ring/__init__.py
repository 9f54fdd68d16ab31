"""The ring that a deployment uses: where it is published, and what it is built from."""
