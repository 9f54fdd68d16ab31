//! Configuration of a mount, and its valid ranges.

use std::path::PathBuf;
use std::time::Duration;

use crate::FuseError;
use crate::limits;

/// Configuration of one mount.
#[derive(Clone, Debug)]
pub struct FuseConfig {
    /// Existing directory to mount on, absolute.
    pub mount_point: PathBuf,
    /// Threads that read the device, 1 to 64. Two serve a depth of one better than one, since one
    /// replies while the other waits for the next request.
    pub threads: usize,
    /// Read-ahead of the kernel for buffered reads, KiB, 0 to 65,536.
    pub read_ahead_kb: u32,
    /// True if users other than root may use the mount (QEMU and Nova do).
    pub allow_other: bool,
    /// Group that reads the images beside root, by its number; `None`: every user does. It holds
    /// for a mount that is taken over too, within the time for which the kernel keeps attributes.
    pub reader_group: Option<u32>,
    /// Name in the first column of `mount`, and the subtype: `fuse.<fs_name>`.
    pub fs_name: String,
    /// SELinux context of every file (`system_u:object_r:virt_content_t:s0`); only where SELinux
    /// is on, the kernel refuses the option elsewhere.
    pub selinux_context: Option<String>,
    /// Most reads that wait for peers and the origin at the same time, 1 to 16,384. Further ones
    /// queue; lookups and cached reads are answered meanwhile.
    pub max_in_flight: usize,
    /// Most reads that wait, with or without being in flight, 1 to 65,536. Further ones are EIO at
    /// once; this only bounds memory.
    pub max_waiting: usize,
    /// Longest time from a read's arrival to its answer. Should exceed the read path's own
    /// deadline: this one only catches a view that breaks its promise.
    pub answer_deadline: Duration,
    /// Asynchronous requests (read-ahead, asynchronous direct I/O) that the kernel keeps in
    /// flight, 12 to 65,535.
    pub max_background: u16,
    /// File that keeps the outcome of INIT for the process that takes over; `None`: no file.
    pub session_file: Option<PathBuf>,
}

impl FuseConfig {
    /// Returns the defaults for a mount point.
    pub fn new(mount_point: impl Into<PathBuf>) -> FuseConfig {
        FuseConfig {
            mount_point: mount_point.into(),
            threads: 2,
            read_ahead_kb: 1024,
            allow_other: true,
            reader_group: None,
            fs_name: "acstor".to_owned(),
            selinux_context: None,
            max_in_flight: 256,
            max_waiting: limits::WAITING_READS_MAX,
            answer_deadline: Duration::from_secs(60),
            max_background: 1024,
            session_file: None,
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`FuseError::Config`] naming the option and the allowed range.
    pub fn validate(&self) -> Result<(), FuseError> {
        let wrong = |option, allowed| Err(FuseError::Config { option, allowed });
        if !self.mount_point.is_absolute() {
            return wrong("mount_point", "an absolute path");
        }
        if !(1..=limits::THREADS_MAX).contains(&self.threads) {
            return wrong("fuse_threads", "1 to 64");
        }
        if self.read_ahead_kb > limits::READ_AHEAD_KB_MAX {
            return wrong("read_ahead_kb", "0 to 65536");
        }
        if !(1..=limits::IN_FLIGHT_MAX).contains(&self.max_in_flight) {
            return wrong("max_in_flight", "1 to 16384");
        }
        if !(1..=limits::WAITING_READS_MAX).contains(&self.max_waiting) {
            return wrong("max_waiting", "1 to 65536");
        }
        if self.max_background < 12 {
            return wrong("max_background", "12 to 65535");
        }
        if self.answer_deadline.is_zero() {
            return wrong("answer_deadline", "more than 0");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.fs_name.is_empty() || !self.fs_name.chars().all(plain) {
            return wrong("fs_name", "letters, digits, - and _");
        }
        let printable = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        if self.selinux_context.as_ref().is_some_and(|c| c.is_empty() || !c.chars().all(printable))
        {
            return wrong("selinux_context", "user:role:type:level without spaces or quotes");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::FuseConfig;

    type Change = fn(&mut FuseConfig);

    #[test]
    fn defaults_are_valid() {
        FuseConfig::new("/mnt").validate().unwrap();
    }

    #[test]
    fn a_wrong_value_is_named_with_its_range() {
        let cases: [(Change, &str); 9] = [
            (|c| c.mount_point = "mnt".into(), "mount_point"),
            (|c| c.threads = 0, "fuse_threads"),
            (|c| c.read_ahead_kb = 65_537, "read_ahead_kb"),
            (|c| c.max_in_flight = 0, "max_in_flight"),
            (|c| c.max_waiting = 65_537, "max_waiting"),
            (|c| c.max_background = 1, "max_background"),
            (|c| c.answer_deadline = std::time::Duration::ZERO, "answer_deadline"),
            (|c| c.fs_name = "a,b".into(), "fs_name"),
            (|c| c.selinux_context = Some("a\"b".into()), "selinux_context"),
        ];
        for (change, option) in cases {
            let mut config = FuseConfig::new("/mnt");
            change(&mut config);
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains(option), "{text}");
        }
    }
}
