//! Named maxima of a ring. A value from disk or network is compared with these before anything is
//! allocated.

/// Most hosts of one ring; 10,000 is the design size, the rest is room for hosts being replaced.
pub const HOSTS_MAX: usize = 16_384;
/// Fewest v-nodes of a ring, as a power of two.
pub const VNODE_BITS_MIN: u8 = 4;
/// Most v-nodes of a ring, as a power of two (8 MiB of lookup table).
pub const VNODE_BITS_MAX: u8 = 22;
/// V-nodes of a ring where the operator chose none: 256 for each of 256 hosts.
pub const VNODES_DEFAULT: u32 = 1 << 16;
/// Rings before the one in use that a host remembers (up to 8 MiB each, usually 128 KiB).
pub const PREVIOUS_RINGS_MAX: usize = 4;
/// Longest host name, bytes.
pub const HOST_NAME_LEN_MAX: usize = 255;
/// Longest address ("ip:port"), bytes.
pub const HOST_ADDRESS_LEN_MAX: usize = 64;
/// Most segments of a topology path.
pub const TOPOLOGY_DEPTH_MAX: usize = 4;
/// Longest segment of a topology path, bytes.
pub const TOPOLOGY_SEGMENT_LEN_MAX: usize = 63;
/// Longest binary form, bytes.
pub const RING_LEN_MAX: usize = 64 + HOSTS_MAX * 1024 + (2 << VNODE_BITS_MAX);
/// Longest text form, bytes.
pub const RING_TEXT_LEN_MAX: usize = 64 << 20;
