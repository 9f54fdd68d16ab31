//! Collective content exchange: hosts that boot one image at once tell each other what they miss. Pure.
//!
//! For the first storm of an image, of which no boot profile is known. One host is the image's rendezvous:
//! it has a [`Meeting`], gives each miss that it hears of for the first time the next place in one order,
//! and passes the order on to those that hang on it in a [`Neighbourhood`]; these pass it on in turn, each
//! out of a [`HintLog`]. A host that follows has a [`Follower`], which says what to fetch ahead and which
//! misses to tell, and [`Holders`], which say who has a chunk. Chunks themselves are pulled by their
//! digests: a hint that lies costs [`bounds::UNMATCHED_MAX`] bytes and changes nothing else.
//!
//! Source: Nicolae and Rafique, *Leveraging Collaborative Content Exchange for On-Demand VM
//! Multi-Deployments in IaaS Clouds*, 2013, algorithms 1 to 3. Differs: chunks are pulled, not pushed;
//! hints go through one host, which gives them an order; what is unmatched for long leaves the count.

pub mod bounds;
mod chunk_state;
mod follower;
mod hint_log;
mod holders;
mod meeting;
mod neighbourhood;

pub use chunk_state::{CHUNK_TRANSITIONS, ChunkEvent, ChunkState};
pub use follower::{Follower, HintUse};
pub use hint_log::{Batch, Hint, HintLog, HostKey};
pub use holders::{Holders, less_loaded};
pub use meeting::{Learnt, Meeting, MeetingFull};
pub use neighbourhood::{Neighbourhood, Order};
