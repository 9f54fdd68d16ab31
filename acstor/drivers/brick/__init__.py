"""The os-brick connector: access of OpenStack's services to the volumes of their host.

It asks the data plane for a volume over the volume socket (:mod:`.volume_calls`) and, in Cinder's
own processes, reads and writes the volume through its NBD export (:mod:`.volume_file`). These
modules are loaded into nova-compute, cinder-volume and cinder-backup.
"""
