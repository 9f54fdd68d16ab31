//! The state machine of a connection, against its table and its page.

use std::path::PathBuf;

use acstor_peer::{ConnectionEvent, ConnectionState, TRANSITIONS};
use acstor_selection::BREAKER_TRANSITIONS;
use acstor_testkit::pages::literal_rows;
use proptest::prelude::*;

const STATES: [ConnectionState; 6] = [
    ConnectionState::Connecting,
    ConnectionState::Securing,
    ConnectionState::Greeting,
    ConnectionState::Serving,
    ConnectionState::Draining,
    ConnectionState::Closed,
];
const EVENTS: [ConnectionEvent; 5] = [
    ConnectionEvent::Connected,
    ConnectionEvent::Secured,
    ConnectionEvent::Greeted,
    ConnectionEvent::DrainRequested,
    ConnectionEvent::Ended,
];

proptest! {
    /// No sequence of events leaves the table, and requests are taken only after all three steps.
    #[test]
    fn proptest_random_events_stay_in_the_table(events in prop::collection::vec(0..EVENTS.len(), 0..50)) {
        let mut state = ConnectionState::Connecting;
        let mut passed = Vec::new();
        for event in events.into_iter().map(|position| EVENTS[position]) {
            match state.after(event) {
                Ok(next) => {
                    prop_assert!(TRANSITIONS.contains(&(state, event, next)));
                    passed.push(event);
                    state = next;
                }
                Err(refused) => {
                    prop_assert!(!TRANSITIONS.iter().any(|row| (row.0, row.1) == (state, event)));
                    prop_assert_eq!((refused.state, refused.event), (state, event));
                }
            }
            if state.takes_requests() {
                let steps = [ConnectionEvent::Connected, ConnectionEvent::Secured, ConnectionEvent::Greeted];
                prop_assert_eq!(&passed[..], &steps[..]);
            }
        }
    }
}

#[test]
fn test_table_every_state_but_closed_can_end() {
    for state in STATES {
        let ended = state.after(ConnectionEvent::Ended);
        match state {
            ConnectionState::Closed => assert!(ended.is_err()),
            _ => assert_eq!(ended, Ok(ConnectionState::Closed), "{state:?}"),
        }
    }
    for event in EVENTS {
        assert!(ConnectionState::Closed.after(event).is_err(), "{event:?}");
    }
}

#[test]
fn test_table_is_the_one_of_the_page() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../doc/source/reference/state-machines/peer-connection.rst");
    let page = std::fs::read_to_string(path).unwrap();
    let mut listed: Vec<[String; 3]> = literal_rows(&page);
    let mut expected: Vec<[String; 3]> = TRANSITIONS
        .iter()
        .map(|(from, event, to)| [format!("{from:?}"), format!("{event:?}"), format!("{to:?}")])
        .collect();
    expected.extend(
        BREAKER_TRANSITIONS.iter().map(|(from, event, to)| {
            [format!("{from:?}"), format!("{event:?}"), format!("{to:?}")]
        }),
    );
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}
