"""Images that Glance has in RBD: snapshots read through librbd, their holes left out."""
