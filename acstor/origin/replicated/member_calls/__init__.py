"""The two interfaces of a store over calls of a member, which have its deadline."""
