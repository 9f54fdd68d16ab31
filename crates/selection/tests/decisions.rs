//! The decisions of a selector in a long history, against the golden file.
//!
//! The read path's own test (`crates/readpath/src/scenarios/selecting.rs`) compares the same file, recorded
//! before the selection was a crate of its own.

use std::collections::HashMap;
use std::time::Duration;

use acstor_selection::{
    Admission, BreakerRules, Choice, CircuitBreaker, Fetch, HedgeCase, Moment, Overview,
    PeerHealth, Prefer, SelectionConfig, Selector, TokenBucket, limits,
};
use acstor_testkit::selection_history::{
    Ending, Line, PEER_DEADLINE, SCENARIOS, Scenario, Source, Subject, record,
};

const ORIGIN_DEADLINE: Duration = Duration::from_secs(10);

/// One host's selection without a read path, as a simulator holds it.
struct Alone {
    now: Moment,
    jitter: f64,
    selector: Selector,
    peers: Vec<PeerHealth>,
    origin: CircuitBreaker,
    hedges: TokenBucket,
    retries: TokenBucket,
    underway: HashMap<u64, Fetch>,
}

impl Alone {
    fn new(scenario: &Scenario) -> Alone {
        let selector = Selector::new(SelectionConfig {
            load_aware: scenario.load_aware,
            compress_slow: scenario.compress_slow,
            slow_fetch: scenario.slow_fetch,
            prefer: if scenario.boot_time { Prefer::BootTime } else { Prefer::OriginBytes },
            ..SelectionConfig::default()
        });
        Alone {
            now: Moment::ZERO,
            jitter: 0.0,
            peers: vec![PeerHealth::new(selector.times()); scenario.peers],
            selector,
            origin: CircuitBreaker::new(),
            hedges: TokenBucket::for_hedges(limits::HEDGE_SHARE_PERCENT),
            retries: TokenBucket::for_retries(),
            underway: HashMap::new(),
        }
    }

    fn view(&mut self) -> Overview {
        let (now, slow_fetch) = (self.now, self.selector.config().slow_fetch);
        self.selector.overview(now).unwrap_or_else(|| {
            let readings = self.peers.iter().map(|peer| peer.delay().reading(slow_fetch, now));
            self.selector.refresh(readings, now)
        })
    }

    fn is_load_aware(&self) -> bool {
        self.selector.config().load_aware
    }

    fn overloaded(&mut self) -> usize {
        let is_overloaded = |subject: &mut Alone, peer: usize| {
            let is_slow =
                subject.selector.slow_estimate(&subject.peers[peer], subject.now).is_some();
            is_slow && {
                let view = subject.view();
                subject.selector.is_overloaded(&subject.peers[peer], &view, subject.now)
            }
        };
        (0..self.peers.len()).filter(|peer| is_overloaded(self, *peer)).count()
    }

    /// Returns whether the origin may be read; nothing is under way there in the place of a peer.
    fn is_origin_granted(&self) -> bool {
        self.origin.is_closed() && self.selector.origin_reads(self.now) > 0
    }

    /// The line without the peers at the positions passed over.
    fn pass(&mut self, line: &[usize], choice: Choice) -> Line {
        let (passed, may_probe, is_origin_granted) = match choice {
            Choice::FirstIsWell { passed } => (passed, false, false),
            Choice::NextPeer { passed, may_probe } => (passed, may_probe, false),
            Choice::Origin { passed, may_probe } if self.is_origin_granted() => {
                (passed, may_probe, true)
            }
            Choice::OriginTrial | Choice::OriginFirst if self.is_origin_granted() => {
                return Line { passed: line.to_vec(), is_origin_granted: true, ..Line::default() };
            }
            Choice::Alternate(position) => {
                let alternate = Some(line[position]);
                return Line { alternate, peers: line.to_vec(), ..Line::default() };
            }
            _ => return Line { peers: line.to_vec(), ..Line::default() },
        };
        let mut found = Line { is_origin_granted, ..Line::default() };
        for (position, peer) in line.iter().enumerate() {
            if passed.contains(position) {
                found.passed.push(*peer)
            } else {
                found.peers.push(*peer)
            }
        }
        assert_eq!(
            (found.passed.len(), found.passed.is_empty()),
            (passed.len(), passed.is_empty())
        );
        if may_probe {
            let (now, jitter) = (self.now, self.jitter);
            let peers = &mut self.peers;
            found.probe =
                found.passed.iter().copied().find(|peer| peers[*peer].take_probe(now, jitter));
        }
        found
    }
}

impl Subject for Alone {
    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn set_jitter(&mut self, unit: f64) {
        self.jitter = unit;
    }

    fn choose(&mut self, line: &[usize], is_guest: bool) -> Line {
        if !self.is_load_aware() {
            return Line { peers: line.to_vec(), ..Line::default() };
        }
        let (now, view) = (self.now, self.view());
        let mut samples = Vec::new();
        if !view.is_own_link_slow {
            for peer in line {
                samples.push(self.selector.sample(&mut self.peers[*peer], &view, now));
            }
        }
        let choice = self.selector.choose(&samples, &view, is_guest, now);
        self.pass(line, choice)
    }

    fn admit(&mut self, peer: usize) -> bool {
        self.peers[peer].admit(PEER_DEADLINE, self.now)
    }

    fn begin(&mut self, source: Source, number: u64) {
        let fetch = match source {
            Some(peer) => self.peers[peer].begin(self.now),
            None => self.selector.begin_origin(self.now),
        };
        self.underway.insert(number, fetch);
    }

    fn end(&mut self, source: Source, number: u64, is_answered: bool) {
        let Some(fetch) = self.underway.remove(&number) else { return };
        match source {
            Some(peer) => self.peers[peer].end(fetch, is_answered, self.now),
            None => self.selector.end_origin(fetch, is_answered, self.now),
        }
    }

    fn note(&mut self, peer: usize, ending: Ending, time: Duration) -> bool {
        let (now, jitter) = (self.now, self.jitter);
        if ending == Ending::Answered {
            self.peers[peer].answered(time, now);
            if !self.is_load_aware() {
                return false;
            }
            let view = self.view();
            return self.selector.keeps(&mut self.peers[peer], &view, now);
        }
        let peer = &mut self.peers[peer];
        match ending {
            Ending::Answered | Ending::Refused => peer.refused(),
            Ending::Corrupt => peer.corrupt(limits::CORRUPT_PEER_OPEN, now),
            Ending::Failed => peer.failed(now, jitter),
            Ending::TimedOut => peer.timed_out(time, now, jitter),
            Ending::Unreachable => peer.unreachable(time, now, jitter),
            Ending::Overtaken => peer.overtaken(time, now),
        }
        false
    }

    fn note_probe(&mut self, peer: usize, time: Duration) {
        self.selector.note_probe(&mut self.peers[peer], time, self.now);
    }

    fn hedge_after(&mut self, source: Source, is_rescue: bool, allowed: Duration) -> Duration {
        let view = self.is_load_aware().then(|| self.view());
        let case = HedgeCase { view: view.as_ref(), is_rescue, allowed };
        self.selector.hedge_after(source.map(|peer| &self.peers[peer]), case, self.now)
    }

    fn accepts_compressed(&mut self, peer: usize) -> bool {
        if !self.selector.config().compress_slow {
            return false;
        }
        let view = self.view();
        self.selector.accepts_compressed(&self.peers[peer], &view, self.now)
    }

    fn hedge_budget(&mut self, is_late: bool) -> bool {
        self.hedges.deposit();
        is_late && self.hedges.try_take(self.now)
    }

    fn retry_budget(&mut self, is_late: bool, earned: u32) -> bool {
        self.retries.deposit();
        self.retries.earn(limits::RETRY_PER_SUCCESS * f64::from(earned));
        is_late && self.retries.try_take(self.now)
    }

    fn admit_origin(&mut self) -> String {
        match self.origin.admit(&BreakerRules::ORIGIN, ORIGIN_DEADLINE, self.now, self.jitter) {
            Admission::Go => "go".to_owned(),
            Admission::Trial => "trial".to_owned(),
            Admission::Wait(until) => format!("{:?}", until.since(self.now)),
        }
    }

    fn note_origin(&mut self, is_success: bool) {
        if is_success {
            self.origin.succeeded();
        } else {
            self.origin.failed(&BreakerRules::ORIGIN, self.now, self.jitter);
        }
    }

    fn summary(&mut self) -> String {
        let now = self.now;
        let mut latencies: Vec<_> = self
            .peers
            .iter()
            .enumerate()
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|(number, peer)| Some((number.to_string(), peer.latency(now)?)))
            .collect();
        latencies.sort_by(|(a, left), (b, right)| {
            right.fetches.cmp(&left.fetches).then_with(|| a.cmp(b))
        });
        latencies.truncate(3);
        let latencies: Vec<String> = latencies
            .iter()
            .map(|(name, found)| {
                format!("{name}:{}:{:?}:{:?}", found.fetches, found.p50, found.p99)
            })
            .collect();
        let slow: Vec<_> = self.peers.iter().map(PeerHealth::slow_for).collect();
        let overloaded = self.overloaded();
        let open = self.peers.iter().filter(|peer| !peer.breaker().is_closed()).count();
        let own = self.is_load_aware() && self.view().is_own_link_slow;
        let origin = self.selector.origin().estimate(now);
        format!(
            "{latencies:?} slow={slow:?} overloaded={overloaded} open={open} own={own} \
             origin={origin:?} up={}",
            self.origin.is_closed(),
        )
    }
}

#[test]
fn test_decisions_are_those_of_the_golden_file() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/decisions.txt");
    let text: String =
        SCENARIOS.iter().map(|scenario| record(*scenario, &mut Alone::new(scenario))).collect();
    if std::env::var_os("ACSTOR_WRITE_GOLDEN").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(golden).unwrap();
    for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "line {}", number + 1);
    }
    assert_eq!(text.len(), expected.len());
}
