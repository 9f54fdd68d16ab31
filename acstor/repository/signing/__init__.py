"""Signatures of documents in the origin: key files, trusted keys, the signed form (Ed25519)."""
