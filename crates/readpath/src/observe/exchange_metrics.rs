//! Counting the exchange of hints.

use prometheus_client::registry::Registry;

use crate::fetch::outcome::{AheadBytes, HintFate, JoinFate};
use crate::observe::metric_names as names;
use crate::observe::metrics::Labelled;

/// Fates of bytes that were ordered on hints, in the order of [`AheadBytes`]. Nicolae and Rafique (2013),
/// figure 3(b), call them matched, too late and unmatched.
const BYTES: &[&str] = &["ordered", "matched", "late", "unmatched"];

/// The counters of the exchange.
#[derive(Debug)]
pub(crate) struct ExchangeMetrics {
    bytes: Labelled,
    hints: Labelled,
    joins: Labelled,
}

impl ExchangeMetrics {
    /// Registers everything with `registry`.
    pub(super) fn new(r: &mut Registry) -> ExchangeMetrics {
        ExchangeMetrics {
            bytes: Labelled::new(
                r,
                names::EXCHANGE_BYTES,
                "Bytes fetched on hints of other hosts",
                "outcome",
                BYTES,
            ),
            hints: Labelled::new(
                r,
                names::EXCHANGE_HINTS,
                "Hints of chunks that hosts missed",
                "outcome",
                HintFate::NAMES,
            ),
            joins: Labelled::new(
                r,
                names::EXCHANGE_JOINS,
                "Requests to take part in an exchange",
                "outcome",
                JoinFate::NAMES,
            ),
        }
    }

    pub(crate) fn bytes(&self, fate: AheadBytes, bytes: u64) {
        self.bytes.add(fate.index(), bytes);
    }

    pub(crate) fn hints(&self, fate: HintFate, count: u64) {
        self.hints.add(fate.index(), count);
    }

    pub(crate) fn joins(&self, fate: JoinFate) {
        self.joins.add(fate.index(), 1);
    }
}
