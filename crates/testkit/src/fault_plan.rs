//! Plan of the calls of a wrapped interface that fail, and of their failures.
//!
//! A wrapper of a trait asks its plan before each call. Tests arm the plan for the n-th call of an
//! operation, for the next calls, or for a share of the calls by seed; the calls made are counted.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::seeded::seeded_rng;

/// Failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The kernel's error with this number, nothing done.
    Errno(i32),
    /// Half of it is done, then the error with this number.
    Torn(i32),
    /// Half of the bytes are there, then the end of the file.
    Short,
}

impl Fault {
    /// An I/O error of the disk.
    pub const EIO: Fault = Fault::Errno(5);
    /// No space left on the disk.
    pub const ENOSPC: Fault = Fault::Errno(28);

    /// Returns the error that the call ends with.
    pub fn error(self) -> io::Error {
        match self {
            Fault::Errno(number) | Fault::Torn(number) => io::Error::from_raw_os_error(number),
            Fault::Short => io::ErrorKind::UnexpectedEof.into(),
        }
    }

    /// Returns how many of `len` bytes are done before the error.
    pub fn done_of(self, len: usize) -> usize {
        match self {
            Fault::Errno(_) => 0,
            Fault::Torn(_) | Fault::Short => len / 2,
        }
    }
}

/// A plan of faults. Cheap to clone; clones share one plan.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Calls that hang go on, or there is one more of them.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<&'static str, u64>,
    rules: Vec<Rule>,
    faults: u64,
    /// Operations of which no call returns.
    hung: Vec<&'static str>,
    /// Calls that hang, by operation.
    hanging: HashMap<&'static str, u64>,
}

/// As long as it lives no call of an operation returns: a disk, or a file system over the network, that
/// does not answer.
#[derive(Debug)]
#[must_use]
pub struct Hang {
    plan: FaultPlan,
    operation: &'static str,
}

impl Hang {
    /// Blocks until `count` calls hang.
    pub fn wait_for(&self, count: u64) {
        let Shared { state, changed } = &*self.plan.0;
        let mut state = state.lock();
        while state.hanging.get(self.operation).copied().unwrap_or(0) < count {
            changed.wait(&mut state);
        }
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        let mut state = self.plan.0.state.lock();
        if let Some(at) = state.hung.iter().position(|hung| *hung == self.operation) {
            state.hung.remove(at);
        }
        self.plan.0.changed.notify_all();
    }
}

#[derive(Debug)]
struct Rule {
    operation: &'static str,
    when: When,
    fault: Fault,
}

#[derive(Debug)]
enum When {
    /// At the call with this number.
    Nth(u64),
    /// Always, until the plan is disarmed.
    Always,
    /// At a share of the calls.
    PerMille(u32, Box<ChaCha8Rng>),
}

impl FaultPlan {
    /// Returns a plan without faults.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Makes the `nth` call of `operation` from now on fail; 1 is the next one.
    pub fn fail_nth(&self, operation: &'static str, nth: u64, fault: Fault) {
        let mut state = self.0.state.lock();
        let made = state.calls.get(operation).copied().unwrap_or(0);
        state.rules.push(Rule { operation, when: When::Nth(made + nth), fault });
    }

    /// Makes every call of `operation` fail until [`FaultPlan::disarm`].
    pub fn fail_always(&self, operation: &'static str, fault: Fault) {
        self.0.state.lock().rules.push(Rule { operation, when: When::Always, fault });
    }

    /// Makes `per_mille` of 1000 calls of `operation` fail, chosen by `seed`.
    pub fn fail_share(&self, operation: &'static str, per_mille: u32, seed: u64, fault: Fault) {
        let when = When::PerMille(per_mille, Box::new(seeded_rng(seed)));
        self.0.state.lock().rules.push(Rule { operation, when, fault });
    }

    /// Makes every call of `operation` wait, from now on and until the answer is dropped.
    pub fn hang(&self, operation: &'static str) -> Hang {
        self.0.state.lock().hung.push(operation);
        Hang { plan: self.clone(), operation }
    }

    /// Takes all rules back.
    pub fn disarm(&self) {
        self.0.state.lock().rules.clear();
    }

    /// Counts a call of `operation`; returns how it must fail, if it must. Blocks while the operation
    /// hangs.
    pub fn next(&self, operation: &'static str) -> Option<Fault> {
        let mut state = self.0.state.lock();
        if state.hung.contains(&operation) {
            *state.hanging.entry(operation).or_default() += 1;
            self.0.changed.notify_all();
            while state.hung.contains(&operation) {
                self.0.changed.wait(&mut state);
            }
            *state.hanging.entry(operation).or_default() -= 1;
        }
        let call = state.calls.entry(operation).or_default();
        *call += 1;
        let call = *call;
        let fault = state.rules.iter_mut().find_map(|rule| rule.applies(operation, call));
        state.faults += u64::from(fault.is_some());
        fault
    }

    /// Number of calls of `operation` so far.
    pub fn calls(&self, operation: &'static str) -> u64 {
        self.0.state.lock().calls.get(operation).copied().unwrap_or(0)
    }

    /// Number of faults so far.
    pub fn faults(&self) -> u64 {
        self.0.state.lock().faults
    }
}

impl Rule {
    fn applies(&mut self, operation: &'static str, call: u64) -> Option<Fault> {
        let due = self.operation == operation
            && match &mut self.when {
                When::Nth(nth) => *nth == call,
                When::Always => true,
                When::PerMille(share, rng) => rng.random_range(0..1000) < *share,
            };
        due.then_some(self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nth_call_fails_and_no_other() {
        let plan = FaultPlan::new();
        assert_eq!(plan.next("read"), None);
        plan.fail_nth("read", 2, Fault::EIO);
        let calls = [plan.next("read"), plan.next("write"), plan.next("read"), plan.next("read")];
        assert_eq!(calls, [None, None, Some(Fault::EIO), None]);
        assert_eq!((plan.calls("read"), plan.faults()), (4, 1));
    }

    #[test]
    fn call_that_hangs_goes_on_once_the_hang_is_over() {
        let plan = FaultPlan::new();
        plan.fail_nth("sync", 1, Fault::EIO);
        let hang = plan.hang("sync");
        std::thread::scope(|scope| {
            let call = scope.spawn(|| plan.next("sync"));
            hang.wait_for(1);
            assert!(!call.is_finished());
            assert_eq!(plan.next("write"), None, "others go on");
            drop(hang);
            assert_eq!(call.join().unwrap(), Some(Fault::EIO));
        });
    }

    #[test]
    fn share_is_repeatable_and_can_be_disarmed() {
        let outcomes = |seed| {
            let plan = FaultPlan::new();
            plan.fail_share("write", 250, seed, Fault::Short);
            let outcomes: Vec<_> = (0..1000).map(|_| plan.next("write")).collect();
            plan.disarm();
            assert_eq!(plan.next("write"), None);
            outcomes
        };
        assert_eq!(outcomes(1), outcomes(1));
        let failed = outcomes(2).into_iter().flatten().count();
        assert!((150..350).contains(&failed), "{failed}");
    }
}
