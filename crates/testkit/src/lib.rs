//! Reference models, fault injectors, seeded data and readers of documentation for tests.
//!
//! A dev-dependency only: nothing here can end up in a production build.

pub mod fault_plan;
pub mod pages;
pub mod reference_eviction;
pub mod seeded;
pub mod selection_history;
pub mod store_model;

pub use fault_plan::{Fault, FaultPlan, Hang};
pub use seeded::{SeededChunks, seeded_rng};
pub use store_model::StoreModel;
