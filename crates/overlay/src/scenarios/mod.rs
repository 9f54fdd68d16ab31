//! Tests of whole volumes: crashes, outages, faulty disks.

pub(crate) mod checkpoint_tests;
pub(crate) mod cold_read_tests;
pub(crate) mod extent_reading;
pub(crate) mod failing_device;
pub(crate) mod failing_device_tests;
pub(crate) mod fold_tests;
pub(crate) mod handover_tests;
pub(crate) mod hold_back_tests;
pub(crate) mod hung_disk_tests;
pub(crate) mod log_crash;
pub(crate) mod memory_disk;
pub(crate) mod memory_origin;
pub(crate) mod outage_tests;
pub(crate) mod push_fault_tests;
pub(crate) mod push_tests;
pub(crate) mod quota_tests;
pub(crate) mod refetch_tests;
pub(crate) mod release_tests;
pub(crate) mod restart_tests;
pub(crate) mod rot_tests;
pub(crate) mod rotting;
pub(crate) mod table_tests;
pub(crate) mod volume_crash;
pub(crate) mod volume_stress;
pub(crate) mod volume_tests;
pub(crate) mod write_history;
