//! Counting the calls of members.

use std::time::Duration;

use acstor_readpath::OriginError;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::metric_names as names;

type Labels = Vec<(&'static str, String)>;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The bytes came.
    Ok,
    /// The member does not have the object.
    NotFound,
    /// It has it damaged.
    Damaged,
    /// It failed.
    Failed,
    /// It carries another generation than the configured one.
    Fenced,
    /// It did not answer in time.
    Late,
    /// All of its threads wait for it.
    Busy,
}

impl Outcome {
    const ALL: [(Outcome, &str); 7] = [
        (Outcome::Ok, "ok"),
        (Outcome::NotFound, "not_found"),
        (Outcome::Damaged, "damaged"),
        (Outcome::Failed, "failed"),
        (Outcome::Fenced, "fenced"),
        (Outcome::Late, "late"),
        (Outcome::Busy, "busy"),
    ];

    /// The outcome of a call of the store.
    pub(crate) fn of(error: Option<&OriginError>) -> Outcome {
        match error {
            None => Outcome::Ok,
            Some(OriginError::NotFound { .. }) => Outcome::NotFound,
            Some(OriginError::ShortRead { .. } | OriginError::DamagedMove { .. }) => {
                Outcome::Damaged
            }
            Some(_) => Outcome::Failed,
        }
    }
}

/// The metrics of all members.
#[derive(Debug)]
pub(crate) struct Families {
    calls: Family<Labels, Counter>,
    corrupt: Family<Labels, Counter>,
    hedges: Family<Labels, Counter>,
    up: Family<Labels, Gauge>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

fn seconds() -> Histogram {
    // As the read path's: 50 us to 105 s in steps of two.
    Histogram::new(exponential_buckets(50e-6, 2.0, 22))
}

impl Families {
    /// Registers all of them with `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Families {
        let families = Families {
            calls: Family::default(),
            corrupt: Family::default(),
            hedges: Family::default(),
            up: Family::default(),
            seconds: Family::new_with_constructor(seconds),
        };
        registry.register(names::CALLS, "Calls of a member of the origin", families.calls.clone());
        let help = "Chunks and pages of a member whose bytes were refused";
        registry.register(names::CORRUPT, help, families.corrupt.clone());
        let help = "Calls that went to another member as well because this one was slow";
        registry.register(names::HEDGES, help, families.hedges.clone());
        registry.register(names::UP, "1 while the member is read", families.up.clone());
        registry.register(names::CALL_SECONDS, "Time of calls", families.seconds.clone());
        families
    }

    /// The metrics of one member, which is up.
    pub(crate) fn of(&self, member: &str) -> MemberMetrics {
        let labels = vec![("member", member.to_owned())];
        let call = |(_, name): (Outcome, &str)| {
            let labels = vec![("member", member.to_owned()), ("outcome", name.to_owned())];
            self.calls.get_or_create_owned(&labels)
        };
        let metrics = MemberMetrics {
            calls: Outcome::ALL.map(call),
            corrupt: self.corrupt.get_or_create_owned(&labels),
            hedges: self.hedges.get_or_create_owned(&labels),
            up: self.up.get_or_create_owned(&labels),
            seconds: self.seconds.get_or_create_owned(&labels),
        };
        metrics.set_up(true);
        metrics
    }
}

/// The metrics of one member.
#[derive(Debug)]
pub(crate) struct MemberMetrics {
    calls: [Counter; Outcome::ALL.len()],
    corrupt: Counter,
    hedges: Counter,
    up: Gauge,
    seconds: Histogram,
}

impl MemberMetrics {
    fn counter(&self, outcome: Outcome) -> &Counter {
        // The outcomes are numbered in the order of their list, as a test knows.
        &self.calls[outcome as usize]
    }

    pub(crate) fn call(&self, outcome: Outcome, count: u64) {
        self.counter(outcome).inc_by(count);
    }

    pub(crate) fn time(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn corrupt(&self) {
        self.corrupt.inc();
    }

    pub(crate) fn hedge(&self) {
        self.hedges.inc();
    }

    pub(crate) fn set_up(&self, is_up: bool) {
        self.up.set(i64::from(is_up));
    }

    #[cfg(test)]
    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        self.counter(outcome).get()
    }

    #[cfg(test)]
    pub(crate) fn corrupt_count(&self) -> u64 {
        self.corrupt.get()
    }

    #[cfg(test)]
    pub(crate) fn is_up(&self) -> bool {
        self.up.get() == 1
    }
}

#[cfg(test)]
mod tests {
    use acstor_testkit::pages::metric_names;

    use super::*;

    #[test]
    fn test_outcomes_are_numbered_in_the_order_of_their_list() {
        for (position, (outcome, _)) in Outcome::ALL.iter().enumerate() {
            assert_eq!(*outcome as usize, position);
        }
    }

    #[test]
    fn test_metrics_are_on_the_page_and_labelled_by_member() {
        let page = include_str!("../../../doc/source/admin/metrics-members.rst");
        let described = metric_names(page);
        let mut registry = Registry::default();
        Families::register(&mut registry).of("nfs").call(Outcome::Late, 3);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for name in names::ALL {
            assert!(described.contains(name), "{name} is not on the page");
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}: {text}");
        }
        assert!(text.contains(r#"calls_total{member="nfs",outcome="late"} 3"#), "{text}");
        assert!(text.contains(r#"acstor_origin_member_up{member="nfs"} 1"#), "{text}");
    }
}
