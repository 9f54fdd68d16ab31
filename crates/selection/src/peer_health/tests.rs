use super::*;

const TRIAL: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn peer() -> PeerHealth {
    PeerHealth::new(OverloadTimes::of(5 * MILLI))
}

#[test]
fn test_failed_peer_is_left_alone_for_a_growing_time() {
    let mut peer = peer();
    let mut now = Moment::ZERO;
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        assert!(peer.admit(TRIAL, now));
        peer.failed(now, 0.5);
        assert!(!peer.admit(TRIAL, now));
        let open = peer.breaker().retry_in(now);
        assert!(open >= last / 2 && open <= limits::PEER_OPEN_MAX);
        last = open;
        now = now + open;
    }
    assert!(peer.admit(TRIAL, now), "half-open");
    assert!(!peer.admit(TRIAL, now), "one at a time");
    peer.answered(MILLI, now);
    assert!(peer.breaker().is_closed());
}

#[test]
fn test_peer_of_wrong_content_is_left_alone_for_the_time_given() {
    let mut peer = peer();
    let now = Moment::ZERO;
    peer.corrupt(HOUR, now);
    assert!(!peer.admit(TRIAL, now + HOUR - SECOND));
    assert!(peer.admit(TRIAL, now + HOUR));
}

/// Fetches that were under way when it sent wrong content end right, refused or not at all.
#[test]
fn test_what_was_under_way_does_not_shorten_the_time_for_wrong_content() {
    let ends: [fn(&mut PeerHealth, Moment); 3] = [
        |peer, now| peer.answered(MILLI, now),
        |peer, _| peer.refused(),
        |peer, now| peer.timed_out(TRIAL, now, 0.5),
    ];
    for end in ends {
        let mut peer = peer();
        peer.corrupt(HOUR, Moment::ZERO);
        end(&mut peer, Moment::ZERO + MILLI);
        assert!(!peer.admit(TRIAL, Moment::ZERO + HOUR - SECOND));
        assert!(peer.admit(TRIAL, Moment::ZERO + HOUR));
    }
}

#[test]
fn test_slow_for_counts_unbroken_samples_only() {
    let mut peer = peer();
    let start = Moment::ZERO;
    assert_eq!(peer.slow_for(), None);
    for number in 0..limits::SLOW_SAMPLES_MIN {
        assert_eq!(peer.slow_for(), None, "too few samples");
        peer.note_sample(true, start + number * SECOND);
    }
    assert_eq!(peer.slow_for(), Some((limits::SLOW_SAMPLES_MIN - 1) * SECOND));
    peer.note_sample(true, start + 9 * SECOND + limits::SAMPLE_GAP_MAX);
    assert_eq!(peer.slow_for(), None, "no samples for a while");
    for number in 20..40 {
        peer.note_sample(true, start + number * SECOND);
    }
    for _ in 0..limits::RECOVERY_SAMPLES {
        peer.note_sample(false, start + 40 * SECOND);
    }
    assert_eq!(peer.slow_for(), None);
    peer.overtaken(limits::TRANSIENT_AFTER / 2, start + 41 * SECOND);
    assert_eq!(peer.slow_for(), None);
    peer.overtaken(SECOND, start + 42 * SECOND);
    assert_eq!(peer.slow_for(), Some(SECOND), "it did not answer all the while");
}

#[test]
fn test_timed_out_peer_is_slow_for_long_and_its_breaker_open() {
    let mut peer = peer();
    let now = Moment::ZERO;
    assert!(!peer.has_answered_within(HOUR, now), "never");
    peer.answered(MILLI, now);
    assert!(peer.has_answered_within(limits::ALTERNATE_ANSWER_AGE, now));
    assert!(!peer.has_answered_within(limits::ALTERNATE_ANSWER_AGE, now + HOUR));
    peer.timed_out(TRIAL / 2, now, 0.0);
    assert_eq!(peer.slow_for(), Some(limits::SUSTAINED_AFTER.max(TRIAL / 2)));
    assert!(!peer.breaker().is_closed());
}

#[test]
fn test_unreachable_peer_is_slow_where_it_took_long_to_see() {
    let (mut refused, mut silent) = (peer(), peer());
    refused.unreachable(MILLI, Moment::ZERO, 0.0);
    silent.unreachable(TRIAL / 2, Moment::ZERO, 0.0);
    assert_eq!(refused.slow_for(), None);
    assert_eq!(silent.slow_for(), Some(limits::SUSTAINED_AFTER.max(TRIAL / 2)));
    assert!(!refused.breaker().is_closed() && !silent.breaker().is_closed());
}

#[test]
fn test_hedge_delay_stays_within_its_bounds() {
    let mut peer = peer();
    let (min, max) = (20 * MILLI, 200 * MILLI);
    assert_eq!(peer.hedge_delay(min, max), max, "nothing known yet");
    for _ in 0..100 {
        peer.answered(Duration::from_micros(300), Moment::ZERO);
    }
    assert_eq!(peer.hedge_delay(min, max), min);
    for _ in 0..1000 {
        peer.answered(3 * SECOND, Moment::ZERO);
    }
    assert_eq!(peer.hedge_delay(min, max), max);
}

#[test]
fn test_take_probe_waits_longer_each_time_and_begins_anew_after_a_pause() {
    let mut peer = peer();
    let mut now = Moment::ZERO;
    for wait in [100, 200, 400, 800, 1000, 1000] {
        assert!(peer.take_probe(now, 0.0));
        let due = now + Duration::from_millis(wait);
        assert!(!peer.take_probe(due - MILLI, 0.0), "{wait}");
        now = due;
    }
    now = now + 2 * limits::PROBE_MAX;
    assert!(peer.take_probe(now, 0.0) && peer.take_probe(now + limits::PROBE_MIN, 0.0));
    peer.probe_soon();
    assert!(peer.take_probe(now + limits::PROBE_MIN, 0.0));
}

#[test]
fn test_latency_is_told_of_peers_that_answered_lately() {
    let mut peer = peer();
    assert_eq!(peer.latency(Moment::ZERO), None);
    (0..50).for_each(|_| peer.answered(3 * MILLI, Moment::ZERO));
    let found = peer.latency(Moment::ZERO).unwrap();
    let bounds = 3 * MILLI..Duration::from_micros(3700);
    assert!(found.fetches == 50 && bounds.contains(&found.p50) && bounds.contains(&found.p99));
    assert_eq!(peer.latency(Moment::ZERO + limits::LATENCY_AGE_MAX), None);
}

#[test]
fn test_silence_is_nearly_all_of_the_time_and_not_what_a_deadline_cut_short() {
    assert!(is_silence(TRIAL, TRIAL, TRIAL));
    assert!(is_silence(TRIAL - 100 * MILLI, TRIAL, TRIAL));
    assert!(!is_silence(SECOND, SECOND, TRIAL), "the guest's deadline came first");
    assert_eq!(peer_time(false, HOUR, TRIAL), TRIAL);
    assert_eq!(peer_time(true, HOUR, TRIAL), HOUR / 2);
}

/// A simulation holds one for each pair of hosts that met.
#[test]
fn test_size_lets_a_simulation_hold_a_million() {
    let bytes = size_of::<PeerHealth>();
    assert!(bytes <= 448, "{bytes}");
}

#[test]
fn test_fetch_for_which_nobody_waits_is_no_trial() {
    let mut peer = peer();
    let now = Moment::ZERO;
    assert!(peer.would_admit(TRIAL, now));
    peer.failed(now, 0.5);
    assert!(!peer.would_admit(TRIAL, now));
    let later = now + peer.breaker().retry_in(now);
    assert!(peer.would_admit(TRIAL, later) && peer.would_admit(TRIAL, later));
    assert!(peer.admit(TRIAL, later), "the trial is left to those who wait");
    assert!(!peer.would_admit(TRIAL, later), "and its end is awaited");
}
