//! The decisions of the selection in a long history, against the golden file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use acstor_ring::RingHandle;
use acstor_runclock::RunClock;
use acstor_selection::{Prefer, limits};
use acstor_testkit::selection_history::{
    Ending, Line, PEER_DEADLINE, SCENARIOS, Scenario, Source, Subject, record,
};
use prometheus_client::registry::Registry;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::memory_store::MemoryStore;
use super::network::{Network, NetworkPort};
use super::test_origin::TestOrigin;
use crate::fetch::flight::Priority;
use crate::origin::origin_health::OriginAdmission;
use crate::steering::peer_table::Peer;
use crate::steering::placement::{Candidate, Plan};
use crate::steering::underway::Underway;
use crate::steering::{FIXED_JITTER, jitter, moment};
use crate::{ReadPath, ReadPathConfig, Seams};

/// The selection inside a read path that fetches nothing.
struct Selecting {
    runtime: Runtime,
    path: ReadPath,
    peers: Vec<Arc<Peer>>,
    underway: HashMap<u64, Underway>,
}

impl Selecting {
    fn new(scenario: &Scenario) -> Selecting {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let network = Network::new();
        let seams = Seams {
            store: Arc::new(MemoryStore::default()),
            peers: Arc::new(NetworkPort { host: "a".to_owned(), network }),
            origin: TestOrigin::new(),
            rings: Arc::new(RingHandle::empty()),
            clock: RunClock::unmeasured(),
        };
        let config = ReadPathConfig {
            host: "a".into(),
            load_aware: scenario.load_aware,
            compress_slow: scenario.compress_slow,
            slow_fetch: scenario.slow_fetch,
            prefer: if scenario.boot_time { Prefer::BootTime } else { Prefer::OriginBytes },
            peer_deadline: PEER_DEADLINE,
            ..ReadPathConfig::default()
        };
        let handle = runtime.handle().clone();
        let path =
            ReadPath::with_workers(config, seams, &mut Registry::default(), handle, |_, _, _| {
                Ok(())
            });
        let path = path.unwrap();
        let peers =
            (0..scenario.peers).map(|n| path.sources.steering.peers.get(&n.to_string())).collect();
        Selecting { runtime, path, peers, underway: HashMap::new() }
    }

    fn candidate(&self, peer: usize) -> Candidate {
        Candidate { peer: self.peers[peer].clone(), address: "10.0.0.1:1".into() }
    }
}

fn number(candidate: &Candidate) -> usize {
    candidate.peer.name.parse().unwrap()
}

impl Subject for Selecting {
    fn wait(&mut self, time: Duration) {
        self.runtime.block_on(tokio::time::advance(time));
    }

    fn set_jitter(&mut self, unit: f64) {
        FIXED_JITTER.set(Some(unit));
    }

    fn choose(&mut self, line: &[usize], is_guest: bool) -> Line {
        let _entered = self.runtime.enter();
        let peers = line.iter().map(|peer| self.candidate(*peer)).collect();
        let mut plan = Plan { peers, ..Plan::default() };
        self.path
            .sources
            .steering
            .steer(&mut plan, if is_guest { Priority::Guest } else { Priority::Preload });
        Line {
            alternate: plan.alternate.as_ref().map(number),
            peers: plan.peers.iter().map(number).collect(),
            passed: plan.passed.iter().map(number).collect(),
            probe: plan.probe.as_ref().map(number),
            is_origin_granted: plan.origin_permit.is_some(),
        }
    }

    fn admit(&mut self, peer: usize) -> bool {
        let _entered = self.runtime.enter();
        self.peers[peer].admit(PEER_DEADLINE, self.path.sources.clock.now())
    }

    fn begin(&mut self, source: Source, number: u64) {
        let _entered = self.runtime.enter();
        let steering = &self.path.sources.steering;
        let underway = match source {
            Some(peer) => steering.begin(&self.peers[peer]),
            None => steering.begin_origin(),
        };
        self.underway.insert(number, underway);
    }

    fn end(&mut self, _: Source, number: u64, is_answered: bool) {
        let _entered = self.runtime.enter();
        match self.underway.remove(&number) {
            Some(underway) if is_answered => underway.answered(),
            underway => drop(underway),
        }
    }

    fn note(&mut self, peer: usize, ending: Ending, time: Duration) -> bool {
        let _entered = self.runtime.enter();
        let sources = &self.path.sources;
        let (peer, now) = (&self.peers[peer], moment(sources.clock.now()));
        if ending == Ending::Answered {
            peer.health().answered(time, now);
            return sources.steering.keeps(peer);
        }
        let mut health = peer.health();
        match ending {
            Ending::Answered | Ending::Refused => health.refused(),
            Ending::Corrupt => health.corrupt(sources.config.lie_penalty, now),
            Ending::Failed => health.failed(now, jitter()),
            Ending::TimedOut => health.timed_out(time, now, jitter()),
            Ending::Unreachable => health.unreachable(time, now, jitter()),
            Ending::Overtaken => health.overtaken(time, now),
        }
        false
    }

    fn note_probe(&mut self, peer: usize, time: Duration) {
        let _entered = self.runtime.enter();
        self.path.sources.steering.note_probe(&self.peers[peer], time);
    }

    fn hedge_after(&mut self, source: Source, is_rescue: bool, allowed: Duration) -> Duration {
        let _entered = self.runtime.enter();
        let peer = source.map(|peer| &*self.peers[peer]);
        self.path.sources.steering.hedge_after(peer, is_rescue, allowed)
    }

    fn accepts_compressed(&mut self, peer: usize) -> bool {
        let _entered = self.runtime.enter();
        self.path.sources.steering.accepts_compressed(&self.peers[peer])
    }

    fn hedge_budget(&mut self, is_late: bool) -> bool {
        let _entered = self.runtime.enter();
        let sources = &self.path.sources;
        sources.steering.hedge_budget.deposit();
        is_late && sources.steering.hedge_budget.try_take(sources.clock.now())
    }

    fn retry_budget(&mut self, is_late: bool, earned: u32) -> bool {
        let _entered = self.runtime.enter();
        let sources = &self.path.sources;
        sources.steering.retry_budget.deposit();
        sources.steering.retry_budget.earn(limits::RETRY_PER_SUCCESS * f64::from(earned));
        is_late && sources.steering.retry_budget.try_take(sources.clock.now())
    }

    fn admit_origin(&mut self) -> String {
        let _entered = self.runtime.enter();
        let now = Instant::now();
        match self.path.sources.origin.queue().health.admit(now) {
            OriginAdmission::Go => "go".to_owned(),
            OriginAdmission::Trial => "trial".to_owned(),
            OriginAdmission::Wait(until) => format!("{:?}", until.duration_since(now)),
        }
    }

    fn note_origin(&mut self, is_success: bool) {
        let _entered = self.runtime.enter();
        let health = &self.path.sources.origin.queue().health;
        if is_success { health.succeeded() } else { health.failed(Instant::now()) }
    }

    fn summary(&mut self) -> String {
        let _entered = self.runtime.enter();
        let sources = &self.path.sources;
        let latencies: Vec<String> = (self.path.peer_latencies(3).iter())
            .map(|peer| format!("{}:{}:{:?}:{:?}", peer.name, peer.fetches, peer.p50, peer.p99))
            .collect();
        let slow: Vec<_> = self.peers.iter().map(|peer| peer.health().slow_for()).collect();
        format!(
            "{latencies:?} slow={slow:?} overloaded={} open={} own={} origin={:?} up={}",
            sources.steering.overloaded_peers(),
            sources.steering.peers.open(),
            sources.steering.is_own_link_slow(),
            sources.steering.origin_estimate(),
            self.path.is_origin_up(),
        )
    }
}

#[test]
fn test_decisions_are_those_of_the_golden_file() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../selection/tests/golden/decisions.txt");
    let text: String =
        SCENARIOS.iter().map(|scenario| record(*scenario, &mut Selecting::new(scenario))).collect();
    let expected = std::fs::read_to_string(golden).unwrap();
    for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "line {}", number + 1);
    }
    assert_eq!(text.len(), expected.len());
}
