"""The hypervisor of a compute host: its guests and their disks, as libvirt tells of them."""
