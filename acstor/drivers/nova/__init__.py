"""Image links, the libvirt volume driver and the os-brick connector."""
