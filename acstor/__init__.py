"""ACStor: the local disks of OpenStack compute nodes as one adaptive cache of VM disks."""
