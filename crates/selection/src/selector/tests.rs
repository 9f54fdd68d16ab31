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
        Host::that_prefers(Prefer::OriginBytes, peers)
    }

    fn that_prefers(prefer: Prefer, peers: usize) -> Host {
        let selector = Selector::new(SelectionConfig { prefer, ..SelectionConfig::default() });
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
fn test_origin_is_first_where_it_is_faster_and_that_is_preferred() {
    let mut host = Host::that_prefers(Prefer::BootTime, 3);
    assert_eq!(host.choose(&[0, 1], true), Choice::InOrder, "2 ms against 1 ms");
    for _ in 0..4 {
        host.peers_answer(&[0, 1], 3 * MILLI);
        host.origin_answers(2 * MILLI);
    }
    assert_eq!(host.choose(&[0, 1], true), Choice::OriginFirst);
    assert_eq!(host.choose(&[0, 1], false), Choice::InOrder, "a preload can wait");
    // Nine more are under way there.
    let fetches: Vec<_> = (0..9).map(|_| host.selector.begin_origin(host.now)).collect();
    assert_eq!(host.choose(&[0, 1], true), Choice::InOrder);
    fetches.into_iter().for_each(|fetch| host.selector.end_origin(fetch, false, host.now));
    let mut sparing = Host::unloaded(3);
    for _ in 0..4 {
        sparing.peers_answer(&[0, 1], 3 * MILLI);
        sparing.origin_answers(2 * MILLI);
    }
    assert_eq!(sparing.choose(&[0, 1], true), Choice::InOrder);
}

#[test]
fn test_origin_of_which_nothing_is_known_is_tried_and_one_that_fills_up_is_left() {
    let mut host = Host::that_prefers(Prefer::BootTime, 3);
    host.selector =
        Selector::new(SelectionConfig { prefer: Prefer::BootTime, ..SelectionConfig::default() });
    assert_eq!(host.choose(&[0, 1], true), Choice::OriginFirst);
    assert_eq!(host.selector.origin_reads(host.now), 1);
    for _ in 0..20 {
        host.origin_answers(2 * MILLI);
    }
    assert!(host.selector.origin_reads(host.now) > 3);
    for _ in 0..20 {
        host.origin_answers(30 * MILLI);
    }
    assert_eq!(host.selector.origin_reads(host.now), 0);
    host.peers_answer(&[0, 1], 100 * MILLI);
    assert_ne!(host.choose(&[0, 1], true), Choice::OriginFirst, "it has no room");
    host.now = host.now + limits::SOURCE_AGE_MAX + MILLI;
    assert_eq!(host.selector.origin_reads(host.now), 1, "nothing new is known of it");
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

const CHUNK: u64 = 65_536;
/// A link of 1 Gbit/s of which nothing is taken.
const IDLE: u64 = 125_000_000;

impl Host {
    /// A peer tells its load with an answer for which nobody waited.
    fn tells(&mut self, peer: usize, wait: Duration, free_rate: Option<u64>) {
        self.now = self.now + MILLI;
        let told = crate::ToldLoad::new(wait, free_rate, CHUNK, self.now);
        self.peers[peer].hear(told);
    }

    fn estimate(&mut self, peer: usize) -> Option<Duration> {
        let view = self.view();
        self.selector.sample(&mut self.peers[peer], &view, self.now).estimate
    }
}

#[test]
fn test_told_full_link_is_passed_by_and_a_told_free_one_is_asked() {
    for (wait, rate) in [(Duration::ZERO, Some(2)), (20 * MILLI, None), (20 * MILLI, Some(IDLE))] {
        let mut host = Host::unloaded(3);
        host.tells(1, Duration::ZERO, Some(IDLE));
        assert_eq!(host.choose(&[0, 1], true), Choice::InOrder);
        host.tells(0, wait, rate);
        for is_guest in [true, false] {
            assert_eq!(host.choose(&[0, 1], is_guest), Choice::Alternate(1), "{wait:?} {rate:?}");
        }
        host.peers_answer(&[0], MILLI);
        assert_eq!(host.choose(&[0, 1], true), Choice::InOrder, "its younger sample counts");
    }
}

#[test]
fn test_told_load_never_sends_to_the_origin_and_starves_nobody() {
    let mut host = Host::unloaded(3);
    for peer in 0..3 {
        host.tells(peer, Duration::from_secs(60), Some(1));
    }
    assert_eq!(host.choose(&[0, 1], true), Choice::OriginBusy, "as the ring has them");
    assert_eq!(host.choose(&[0, 1], false), Choice::InOrder);
    host.tells(1, Duration::ZERO, Some(IDLE));
    assert!(matches!(host.choose(&[0, 1], true), Choice::Alternate(1)));
    host.now = host.now + limits::TOLD_AGE_MAX;
    assert_eq!(host.choose(&[0, 1], true), Choice::InOrder);
}

#[test]
fn test_prior_is_of_the_slower_link_and_good_news_is_no_better_than_none() {
    let mut host = Host::unloaded(2);
    host.peers.push(PeerHealth::new(host.selector.times()));
    host.tells(2, 2 * MILLI, Some(CHUNK * 500));
    assert_eq!(host.estimate(2), Some(4 * MILLI), "of one that was never asked");
    host.selector.set_receiving(Some(crate::transfer_time(CHUNK, CHUNK * 100)));
    assert_eq!(host.estimate(2), Some(12 * MILLI));
    assert_eq!(host.choose(&[2, 0], true), Choice::InOrder, "its own link passes nobody by");
    let sampled = host.estimate(0).unwrap();
    host.selector.set_receiving(None);
    host.tells(0, Duration::ZERO, Some(u64::MAX));
    assert!(host.estimate(0).unwrap() >= sampled / 2, "no better than its samples");
}

#[test]
fn test_compression_is_accepted_by_the_slower_of_the_links_that_are_told() {
    let accepts = |host: &mut Host, peer: usize| {
        let view = host.view();
        host.selector.accepts_compressed(&host.peers[peer], &view, host.now)
    };
    let mut host = Host::unloaded(2);
    assert!(!accepts(&mut host, 0), "nobody tells, and nothing is slow");
    host.tells(0, Duration::ZERO, Some(10 * IDLE));
    assert!(!accepts(&mut host, 0), "10 Gbit/s");
    host.tells(0, Duration::ZERO, Some(IDLE / 2));
    host.peers_answer(&[0], MILLI);
    assert!(accepts(&mut host, 0), "a younger sample tells nothing of the link");
    assert!(!accepts(&mut host, 1));
    host.selector.set_receiving(Some(crate::transfer_time(CHUNK, IDLE / 2)));
    assert!(accepts(&mut host, 1), "its own link");
    let seen = crate::CompressionCost { ratio: 0.99, ..crate::CompressionCost::default() };
    host.selector.set_compression(seen);
    assert!(!accepts(&mut host, 1), "what does not compress");
    host.selector.set_receiving(Some(crate::transfer_time(CHUNK, 0)));
    assert!(accepts(&mut host, 1), "a full link, a hundredth of two seconds");
}
