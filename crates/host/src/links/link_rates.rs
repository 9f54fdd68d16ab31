//! Free rates of this host's own link, as the agent measures them, for as long as it says that they hold.
//!
//! They are news of some seconds ago, and a bound on what is begun: two chunks at a time go ahead over a link
//! of which nothing is free, and peers are told what it has to spare. Whoever tells them may die; then they are
//! forgotten in time, and this host does as one that nobody tells anything.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Host, HostError, Parts};

/// Longest time for which rates hold without being told again.
const VALID_MAX: Duration = Duration::from_secs(3600);

/// Bytes per second that the host's link has free; `None`: nobody tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeRates {
    /// Of what it receives.
    pub inwards: Option<u64>,
    /// Of what it sends.
    pub outwards: Option<u64>,
}

/// The rates that hold now.
#[derive(Debug, Default)]
pub(crate) struct LinkRates(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    rates: FreeRates,
    /// Counts what was told, so that only the last is forgotten when its time is over.
    number: u64,
}

impl LinkRates {
    /// Takes rates over; returns their number.
    fn set(&self, rates: FreeRates) -> u64 {
        let mut told = self.0.lock();
        told.rates = rates;
        told.number += 1;
        told.number
    }

    /// Forgets the rates of that number; returns whether they were the last.
    fn forget(&self, number: u64) -> bool {
        let mut told = self.0.lock();
        let is_last = told.number == number;
        if is_last {
            told.rates = FreeRates::default();
        }
        is_last
    }

    /// The rates that hold now.
    pub(crate) fn now(&self) -> FreeRates {
        self.0.lock().rates
    }
}

impl Parts {
    /// Has the read path and the server of peers go by the rates that hold now.
    fn apply_link_rates(&self) {
        // Under the lock of what serves: of two changes at once the later one is applied last.
        let serving = self.serving.lock();
        let rates = self.link_rates.now();
        self.read_path.set_free_rate(rates.inwards);
        if let Some(peers) = &serving.peers {
            peers.tell_free_rate(rates.outwards);
        }
    }
}

impl Host {
    /// Takes over what is free of this host's link, until it is told anew or `valid` is over.
    ///
    /// # Errors
    /// [`HostError::Argument`] for a time that is too long, [`HostError::State`] for a data plane that was
    /// stopped.
    pub fn set_free_rates(&self, rates: FreeRates, valid: Duration) -> Result<(), HostError> {
        if valid.is_zero() || valid > VALID_MAX {
            return Err(HostError::Argument {
                name: "valid_s",
                value: valid.as_secs_f64().to_string(),
                allowed: "above 0, at most an hour",
            });
        }
        if self.runtime.lock().is_none() {
            return Err(HostError::State("stopped"));
        }
        let number = self.parts.link_rates.set(rates);
        self.parts.apply_link_rates();
        // Holds nothing of the data plane, which may be gone before.
        self.handle.spawn(forget_in(Arc::downgrade(&self.parts), number, valid));
        Ok(())
    }
}

/// Forgets rates when their time is over, unless others were told meanwhile.
async fn forget_in(parts: Weak<Parts>, number: u64, valid: Duration) {
    tokio::time::sleep(valid).await;
    let Some(parts) = parts.upgrade() else { return };
    if parts.link_rates.forget(number) {
        tracing::info!("nobody tells any more what is free of this host's link");
        parts.apply_link_rates();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_the_last_rates_are_forgotten() {
        let rates = LinkRates::default();
        assert_eq!(rates.now(), FreeRates::default());
        let first = rates.set(FreeRates { inwards: Some(1), outwards: None });
        let second = rates.set(FreeRates { inwards: Some(0), outwards: Some(2) });
        assert!(!rates.forget(first));
        assert_eq!(rates.now(), FreeRates { inwards: Some(0), outwards: Some(2) });
        assert!(rates.forget(second));
        assert_eq!(rates.now(), FreeRates::default());
    }
}
