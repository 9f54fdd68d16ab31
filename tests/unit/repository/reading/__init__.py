"""Tests of reading disks out of a repository."""
