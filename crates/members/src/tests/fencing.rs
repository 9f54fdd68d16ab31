//! Members of an earlier generation.

use acstor_readpath::OriginError;

use super::faulty::{FaultMode, GENERATION, Refused, World, content};
use crate::MembersError;
use crate::member_metrics::Outcome;

#[test]
fn test_member_of_an_older_generation_is_not_read() {
    let world = World::new(2, |_| {});
    *world.stores[0].generation.lock() = Ok(GENERATION - 1);
    assert_eq!(world.read(), Ok(content()));
    assert_eq!((world.stores[0].asked(), world.stores[1].asked()), (0, 1));
    assert_eq!(world.source.member(0).metrics.count(Outcome::Fenced), 1);
    assert!(!world.source.member(0).metrics.is_up());
}

#[test]
fn test_nothing_is_absent_while_a_member_of_another_generation_may_have_it() {
    let world = World::new(2, |_| {});
    *world.stores[0].generation.lock() = Ok(GENERATION - 1);
    world.stores[1].set(FaultMode::Missing);
    let Err(Refused::Error(error @ OriginError::Undecided { .. })) = world.read() else {
        panic!("it is not known");
    };
    let text = error.to_string();
    assert!(text.contains("generation 4, and 5 is configured"), "{text}");
}

#[test]
fn test_member_is_read_once_its_generation_is_configured() {
    let world = World::new(2, |_| {});
    world.source.set_generation("a", GENERATION + 9).unwrap();
    world.stores[1].set(FaultMode::Missing);
    assert!(world.read().is_err());
    world.source.set_generation("a", GENERATION).unwrap();
    assert_eq!(world.read(), Ok(content()));
    let error = world.source.set_generation("z", 1).unwrap_err();
    assert!(matches!(error, MembersError::Unknown(name) if name == "z"));
}

#[test]
fn test_member_that_grew_while_the_home_was_out_of_reach_is_read() {
    let world = World::new(2, |_| {});
    *world.stores[0].generation.lock() = Ok(GENERATION + 9);
    world.stores[1].set(FaultMode::Missing);
    assert_eq!(world.read(), Ok(content()));
}

#[test]
fn test_member_whose_generation_cannot_be_read_is_not_read() {
    let world = World::new(2, |_| {});
    let cause = "no ref".to_owned();
    *world.stores[0].generation.lock() = Err(OriginError::Unavailable { pack: "x".into(), cause });
    assert_eq!(world.read(), Ok(content()));
    assert_eq!(world.stores[0].asked(), 0);
    assert_eq!(world.source.member(0).metrics.count(Outcome::Failed), 1);
    *world.stores[0].generation.lock() = Ok(GENERATION + 1);
    assert_eq!(world.read(), Ok(content()));
    assert_eq!(world.stores[0].asked(), 1, "a growth under way");
}
