"""Files for Horizon's folder ``openstack_dashboard/local/enabled``."""
