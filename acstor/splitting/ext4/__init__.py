"""Reading ext2, ext3 and ext4 file systems whole: owners, attributes, links, holes.

:mod:`acstor.browsing` shows files and leaves out what only a copy needs. This is Python, so bytes
that lie cost an error, not memory of others. Source: Documentation/filesystems/ext4 of Linux.
"""
