"""Revocation of images: withdrawing one at once, and proving that no host has it any more."""
