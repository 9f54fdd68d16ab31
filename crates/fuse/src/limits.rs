//! Named maxima of the FUSE front end.

use std::time::Duration;

/// Most threads that read the device.
pub const THREADS_MAX: usize = 64;
/// Largest READ that is answered, bytes; the kernel sends at most 1 MiB (256 pages).
pub const READ_SIZE_MAX: usize = 1 << 20;
/// Pages of the largest request, as agreed in INIT.
pub const REQUEST_PAGES_MAX: u16 = 256;
/// Buffer of one thread for one request, bytes. Requests that carry data (WRITE) are limited to
/// [`WRITE_SIZE_MAX`] in INIT, so this holds every request.
pub const REQUEST_BUFFER_BYTES: usize = 64 << 10;
/// Largest WRITE that the kernel may send, bytes: the least it accepts, since all are refused.
pub const WRITE_SIZE_MAX: u32 = 4 << 10;
/// Longest file name, bytes.
pub const NAME_MAX: usize = 255;
/// Largest answer to READDIR and READDIRPLUS, bytes.
pub const DIRECTORY_REPLY_MAX: usize = 128 << 10;
/// Most pieces of one `writev` (`IOV_MAX` of Linux).
pub const IOVECS_MAX: usize = 1024;
/// Most reads that wait for a permit or for an answer, upper bound of the option.
pub const WAITING_READS_MAX: usize = 64 << 10;
/// Most reads that wait for peers and the origin at the same time, upper bound of the option.
pub const IN_FLIGHT_MAX: usize = 16 << 10;
/// Most reads of one file that wait for peers and the origin at the same time. Eight files whose reads
/// all hang fill the default of all files together.
pub const READS_PER_FILE_MAX: usize = 32;
/// Largest read-ahead, KiB.
pub const READ_AHEAD_KB_MAX: u32 = 64 << 10;
/// Most files in the table.
pub const FILES_MAX: usize = 1 << 20;
/// Time for which the kernel may cache a name or attributes.
pub const ATTRIBUTES_VALID: Duration = Duration::from_secs(60);
/// Time for which the kernel may cache that a name does not exist. Nova looks for its base image
/// right after the agent attached it, so this is short.
pub const NO_ENTRY_VALID: Duration = Duration::from_millis(100);
/// Time for which a count of cached bytes is reused for `st_blocks`.
pub const CACHED_BYTES_VALID: Duration = Duration::from_secs(1);
/// Largest session file, bytes.
pub const SESSION_FILE_MAX: usize = 4 << 10;
/// Longest wait for the threads to notice a stop.
pub const STOP_WAIT: Duration = Duration::from_secs(5);
