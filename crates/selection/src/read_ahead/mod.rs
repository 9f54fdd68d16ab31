//! Read-ahead along the profile of a boot: the chunks to order next. Pure.
//!
//! One [`ReadAhead`] per open of an image. It is told of each read, of what became of what it ordered,
//! and of the room for more; [`ReadAhead::next`] names the chunks to order now. One rule is window,
//! throttle and bound of the cost:
//!
//! > bytes ordered and unread <= max(bytes that read-ahead got right in these opens,
//! > [`READ_AHEAD_FLOOR`](crate::limits::READ_AHEAD_FLOOR)), and at most the budget
//!
//! Opens of one image on one host count together, so that a profile is wrong once per host. A right one
//! doubles its window as it goes. A wrong one costs the floor and stands still. In the end, what was ordered
//! in vain is at most what was right plus the floor.

mod boot_profile;
mod window;

pub use boot_profile::{BootKind, BootProfile, BootProfileError};
pub(crate) use window::mixed;
pub use window::{AheadBalance, ReadAhead, Touch, in_flight_bytes};
