//! Named numbers of multicast, with the measurement or the source of each.

use std::time::Duration;

/// Length of an epoch. Capo leaves it open; ten decisions a second follow a storm, and at 1 % of 1 Gbit/s an
/// epoch has 86 packets, enough for a loss of 1 % to be seen.
pub const EPOCH: Duration = Duration::from_millis(100);
/// Time in an epoch after which the one before is reported: packets that overtook each other are in by then.
pub const REPORT_DELAY: Duration = Duration::from_millis(50);
/// Epochs after its end at which an epoch is judged: reports travel, and come [`REPORT_DELAY`] late.
pub const JUDGED_AFTER: u32 = 2;
/// Share of the link at the start.
pub const RATE_START: f64 = 0.01;
/// Share of the link that a clean epoch adds.
pub const RATE_STEP: f64 = 0.01;
/// Factor of the rate after an epoch that was not clean.
pub const RATE_BACK_OFF: f64 = 0.5;
/// Least share of the link: below, a session takes longer than the ring would.
pub const RATE_MIN: f64 = 0.002;
/// Greatest share of the link: TCP gives way to what does not back off for it, so half is always its own.
pub const RATE_MAX: f64 = 0.5;
/// Share of the packets above whose loss an epoch is not clean.
pub const LOSS_CLEAN_MAX: f64 = 0.005;
/// Share of the packets whose loss parity carries: of 50 packets at random more than three are lost in 1.8 % of
/// chunks at this loss, in 6 % at 3 %.
pub const LOSS_CARRIED_MAX: f64 = 0.02;
/// Judged epochs over which the loss is taken together: above what is carried for so long, 3 s, a session ends.
/// What the session itself causes is less by then.
pub const LOSSY_EPOCHS: usize = 30;
/// Epochs of those that must have such loss each: one burst, or a group that is no longer heard, is another case.
pub const LOSSY_EPOCHS_MIN: usize = 10;
/// Share of a link, told by its host, above which an epoch is not clean.
pub const LINK_BUSY: f64 = 0.9;
/// Quantile of the loss that decides: the slowest tenth is repaired by the ring and slows nobody.
pub const LOSS_QUANTILE: f64 = 0.9;
/// Hosts that report an epoch, on average.
pub const REPORTERS: u32 = 16;
/// Share of an epoch's packets that a host which hears the group receives.
pub const HEARD_MIN: f64 = 0.9;
/// Epochs in a row in which fewer than half of the drawn hosts hear the group that end a session: three as a
/// probe at its start, and the same all along, since a switch that snoops without a querier forgets the group
/// after 260 s (RFC 3376, section 8.4).
pub const DEAF_EPOCHS_MAX: u32 = 3;
/// Epochs in a row for which a drawn host has sent no report after which its silence no longer counts as loss.
pub const SILENT_EPOCHS_MAX: u32 = 10;
/// Packets that one key encrypts (RFC 9001, section 6.6, for AES-GCM).
pub const PACKETS_PER_KEY_MAX: u64 = 1 << 23;
/// Bytes of content in a packet. With headers 1,452 bytes, the payload of a datagram in a frame of 1,500 bytes
/// over IPv6 (1,472 over IPv4).
pub const SHARD_LEN: usize = 1_400;
/// Data packets for which there are [`PARITY_PER_GROUP`] parity packets: those of a chunk of 64 KiB.
pub const PARITY_GROUP: usize = 47;
/// Parity packets per [`PARITY_GROUP`] data packets.
pub const PARITY_PER_GROUP: usize = 3;
/// Chunks whose packets are sent in turn, so that a burst of lost packets is spread over as many.
pub const INTERLEAVED_CHUNKS: usize = 8;
/// Bytes of chunks that interleave: large chunks are sent one after the other.
pub const INTERLEAVED_BYTES_MAX: usize = 4 << 20;
/// Time of the rate that may be sent at once: the ticks of timers are a millisecond.
pub const BURST: Duration = Duration::from_millis(2);
/// Packets that may be sent at once, whatever the rate.
pub const BURST_PACKETS_MIN: usize = 4;
/// Packets that say that everything was sent: all of them are lost less often than the switch fails.
pub const END_PACKETS: u8 = 3;
/// Bytes of chunks in parts that a receiver holds.
pub const ASSEMBLY_BYTES_MAX: usize = 32 << 20;
/// Packet numbers, back from the greatest seen, within which a packet is told from its double.
pub const SEEN_WINDOW: u64 = 1 << 16;
/// Members of a session.
pub const MEMBERS_MAX: usize = 16_384;
/// Sessions that a host sends or receives at a time.
pub const SESSIONS_MAX: usize = 4;
/// Time from the first request to join a session until it sends: others of the same preload join meanwhile.
pub const JOIN_WINDOW: Duration = Duration::from_secs(2);
/// Time for which a session that has ended still answers its members.
pub const ENDED_KEPT: Duration = Duration::from_secs(30);
/// Time after a group that nobody heard until it is tried again: an operator may have repaired the switch.
pub const DEAF_PAUSE: Duration = Duration::from_secs(600);
/// Fewest members for which a session is worth its trouble: two hosts pull as fast.
pub const MEMBERS_MIN: usize = 3;
/// Silence of a group after which a receiver gives it up.
pub const RECEIVER_SILENCE_MAX: Duration = Duration::from_secs(3);
/// Time for the chunks of a batch to come to their sender; those that take longer are left out.
pub const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Datagrams in a row that the system refuses to send after which a session ends.
pub const SEND_FAILURES_MAX: u32 = 1_000;
/// Time for a report to be answered.
pub const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest message of [`crate::wire::Message`], bytes.
pub const MESSAGE_LEN_MAX: usize = 72;
