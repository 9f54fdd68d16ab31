//! Bounds of the exchange. Each is described alone: its meaning, its unit, what it rests on.

use std::time::Duration;

/// Bytes fetched on hints and not read beyond which a host follows and sends none: 128 chunks of 32 KiB,
/// as in the source (section 4.2), kept in bytes.
pub const UNMATCHED_MAX: u64 = 4 << 20;
/// Time after which a chunk that came on a hint and was not read leaves the count and the memory, which the
/// source leaves open. Chosen: three times what the slowest boot of the evaluation takes between two reads
/// of what it reads at all.
pub const UNMATCHED_AGE_MAX: Duration = Duration::from_secs(30);
/// Hints that wait at most before they are sent. Chosen: half a kilobyte in one frame.
pub const BATCH_HINTS: usize = 32;
/// Time that a hint waits for others at most. Chosen: less than a read of a disk, more than a round trip.
pub const BATCH_WAIT: Duration = Duration::from_millis(5);
/// Hints of one frame at most: what a host that joins late is told at a time.
pub const FRAME_HINTS_MAX: usize = 256;
/// Hints of one image that are remembered at most: 1 GiB of chunks of 64 KiB, some twenty boots.
pub const HINTS_MAX: usize = 16_384;
/// Chunks of one image whose reads a host remembers at most: sixteen times [`HINTS_MAX`], so that every hint
/// finds whether it is late. Beyond, as of a guest that reads a disk of terabytes from its start to its end,
/// reads are neither remembered nor told.
pub const READS_MAX: usize = 16 * HINTS_MAX;
/// Hints of one image that are heard of one host at most: a quarter of [`HINTS_MAX`], several boots of a
/// small image. A host that floods fills no more.
pub const HOST_HINTS_MAX: u32 = 4096;
/// Hosts of one exchange at most.
pub const MEMBERS_MAX: usize = 4096;
/// Hosts that hang on one host at most; those beyond hang on the rendezvous or hear nothing.
pub const HEARERS_MAX: usize = 64;
/// Times that one host is told a part of an order again at most: what was lost, or a host that lies.
pub const REWINDS_MAX: u32 = 8;
/// Hosts to which each passes hints on at most, where the order has a choice.
pub const FAN_OUT_MAX: u32 = 32;
/// Time within which a host says again that it takes part.
pub const RENEW_AFTER: Duration = Duration::from_secs(5);
/// Time after which a host that has not said so again is forgotten: three times [`RENEW_AFTER`].
pub const MEMBER_AGE_MAX: Duration = Duration::from_secs(15);
/// Hosts that are remembered as having a chunk: the first that missed it, and the one that passed it on.
pub const HOLDERS_MAX: usize = 2;
