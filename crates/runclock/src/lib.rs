//! A clock that stands still while the runtime does.
//!
//! A host that is starved of processor, stopped, or blocked finds everybody late: the answers lie in its
//! sockets, and its timers fire before it has looked there. Whoever is judged by how long they were
//! silent must be judged by the time in which this host could have heard them. A [`RunClock`] measures
//! the scheduling lag of a tokio runtime by a task with a fixed tick and takes it off the time: what is
//! left is *running time*, in [`RunInstant`]s, which no one confuses with the wall clock's.
//!
//! A standstill is excused whole. A host that is late all the time is excused a part of each lag
//! ([`BUSY_SHARE`]), so that it finds a dead peer later, but finds it.
//!
//! Source: the local health of Lifeguard (Dadgar, Phillips, Currey, arXiv 1707.00788, 2017), where a
//! member that is slow itself gives others more time, and jHiccup (Tene, 2012), which measures how late a
//! sleeping thread wakes. Differs: the time given is what was measured, not a score, and it is known to
//! whoever asks before the tick itself has run.

mod clock;
mod instant;
mod lag;

pub use clock::{Elapsed, RunClock};
pub use instant::RunInstant;
pub use lag::{BUSY_SHARE, LagTotals, TICK, TOLERANCE};
