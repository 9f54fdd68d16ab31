"""Splitting a disk image by durability: paths move to partitions that are named for a class.

Source: Capo (FAST 2011), section 4.3.4 and Table 2. Differs: the paper moves what has one policy to
one new file system for it and leaves reparse points; here each path has a partition of its own,
mounted where it was, and partitions of one class have one name, which the data plane knows.
"""
