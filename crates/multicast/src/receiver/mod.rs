//! The receiving side of a session.

mod assembly;
mod epoch_counts;
mod listener;
mod seen_numbers;

pub use assembly::{Assembly, Shard};
pub use epoch_counts::{DueReport, EpochCounts};
pub use listener::{Arrival, Receiver, ReceiverConfig, ReceiverStats};
pub use seen_numbers::SeenNumbers;
