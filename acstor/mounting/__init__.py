"""Mounting the file system of the images: by the data plane itself, or by acstor-mount for it.

The data plane needs no privilege but to mount. So a small process, ``acstor-mount``, does that for
it and hands the descriptor over; where the data plane is root it goes without.
"""
