use super::*;

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A host with an origin and peers, and the time.
struct Host {
    selector: Selector,
    peers: Vec<PeerHealth>,
    now: Moment,
}

impl Host {
    /// Everybody has answered fast for a while.
    fn unloaded(peers: usize) -> Host {
        let selector = Selector::new(SelectionConfig::default());
        let peers = vec![PeerHealth::new(selector.times()); peers];
        let mut host = Host { selector, peers, now: Moment::ZERO };
        let all: Vec<usize> = (0..host.peers.len()).collect();
        for _ in 0..40 {
            host.origin_answers(2 * MILLI);
            host.peers_answer(&all, MILLI);
        }
        host
    }

    fn origin_answers(&mut self, time: Duration) {
        let fetch = self.selector.begin_origin(self.now);
        self.now = self.now + time;
        self.selector.end_origin(fetch, true, self.now);
    }

    /// Each of the peers answers a fetch after `time`; all begin together.
    fn peers_answer(&mut self, peers: &[usize], time: Duration) {
        let fetches: Vec<_> = peers.iter().map(|at| self.peers[*at].begin(self.now)).collect();
        self.now = self.now + time;
        for (at, fetch) in peers.iter().zip(fetches) {
            self.peers[*at].end(fetch, true, self.now);
            self.peers[*at].answered(time, self.now);
        }
        let view = self.view();
        for at in peers {
            self.selector.keeps(&mut self.peers[*at], &view, self.now);
        }
    }

    fn view(&mut self) -> Overview {
        let (now, slow_fetch) = (self.now, self.selector.config().slow_fetch);
        let readings = self.peers.iter().map(|peer| peer.delay().reading(slow_fetch, now));
        self.selector.refresh(readings, now)
    }

    fn choose(&mut self, line: &[usize], is_guest: bool) -> Choice {
        let (view, now) = (self.view(), self.now);
        let mut samples = Vec::new();
        if !view.is_own_link_slow {
            for at in line {
                samples.push(self.selector.sample(&mut self.peers[*at], &view, now));
            }
        }
        self.selector.choose(&samples, &view, is_guest, now)
    }
}

#[test]
fn test_calm_line_stays_in_order() {
    assert_eq!(Host::unloaded(3).choose(&[0, 1], true), Choice::InOrder);
}

#[test]
fn test_overloaded_owner_is_passed_over_in_two_steps() {
    let mut host = Host::unloaded(3);
    let start = host.now;
    let mut alternate_at = None;
    loop {
        host.peers_answer(&[1, 2], MILLI);
        host.origin_answers(2 * MILLI);
        host.peers_answer(&[0], 50 * MILLI);
        let since = host.now.since(start);
        match host.choose(&[0, 1], true) {
            Choice::InOrder => assert!(alternate_at.is_none(), "{since:?}"),
            Choice::Alternate(1) => alternate_at = alternate_at.or(Some(since)),
            Choice::NextPeer { passed, may_probe } => {
                assert!(passed.contains(0) && passed.len() == 1 && may_probe);
                assert!(since >= limits::SUSTAINED_AFTER, "{since:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
        assert!(since < 3 * SECOND, "it is never passed over");
    }
    assert!(alternate_at.is_some_and(|at| at >= limits::TRANSIENT_AFTER), "{alternate_at:?}");
    assert!(
        matches!(host.choose(&[1, 0], true), Choice::FirstIsWell { passed } if passed.contains(1))
    );
    let view = host.view();
    assert!(host.selector.accepts_compressed(&host.peers[0], &view, host.now));
    assert!(!host.selector.accepts_compressed(&host.peers[1], &view, host.now));
}

#[test]
fn test_origin_takes_the_place_of_peers_for_guests_only_and_while_it_is_well() {
    let mut host = Host::unloaded(3);
    for _ in 0..40 {
        host.peers_answer(&[0, 1], 50 * MILLI);
        host.peers_answer(&[2], MILLI);
        host.origin_answers(2 * MILLI);
    }
    assert!(
        matches!(host.choose(&[0, 1], true), Choice::Origin { passed, .. } if passed.len() == 2)
    );
    assert_eq!(host.choose(&[0, 1], false), Choice::InOrder, "a preload can wait");
    for _ in 0..6 {
        host.origin_answers(40 * MILLI);
        host.peers_answer(&[2], MILLI);
    }
    host.peers_answer(&[0, 1], 60 * MILLI);
    assert_eq!(host.choose(&[0, 1], true), Choice::OriginBusy, "as in a storm");
}

#[test]
fn test_own_slow_link_keeps_the_order_and_tries_the_origin_now_and_then() {
    let mut host = Host::unloaded(3);
    let mut trials = Vec::new();
    let start = host.now;
    while host.now.since(start) < 9 * SECOND {
        host.peers_answer(&[0, 1, 2], 60 * MILLI);
        match host.choose(&[0, 1], true) {
            Choice::OriginTrial => trials.push(host.now),
            Choice::InOrder => {}
            // Until the origin's last answer is too old to speak for the link.
            other => assert!(host.now.since(start) <= limits::SOURCE_AGE_MAX, "{other:?}"),
        }
    }
    assert!(trials.len() >= 2, "{trials:?}");
    let apart = trials.windows(2).map(|pair| pair[1].since(pair[0]));
    assert!(apart.into_iter().all(|time| time >= limits::ORIGIN_TRIAL_INTERVAL));
    let view = host.view();
    assert!(view.is_own_link_slow);
    let case = HedgeCase { view: Some(&view), is_rescue: false, allowed: 30 * SECOND };
    let late = host.selector.hedge_after(Some(&host.peers[0]), case, host.now);
    assert!(late >= limits::HEDGE_MAX && late <= 15 * SECOND, "{late:?}");
}

#[test]
fn test_hedge_follows_the_p99_of_the_peer_within_the_bounds() {
    let mut host = Host::unloaded(3);
    let view = host.view();
    let case = HedgeCase { view: Some(&view), is_rescue: false, allowed: 30 * SECOND };
    let hedge = |host: &Host, case| host.selector.hedge_after(Some(&host.peers[0]), case, host.now);
    assert_eq!(hedge(&host, case), limits::HEDGE_MIN);
    assert_eq!(hedge(&host, HedgeCase { is_rescue: true, ..case }), limits::HEDGE_MAX);
    assert_eq!(
        host.selector.hedge_after(None, case, host.now),
        limits::HEDGE_MIN,
        "four times 2 ms"
    );
}
