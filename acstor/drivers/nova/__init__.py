"""Image links, the libvirt volume driver and the os-brick connector (a later step fills it)."""
