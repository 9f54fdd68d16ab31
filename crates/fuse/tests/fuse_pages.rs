//! Holds the pages of the documentation and the tests and tables of the code together.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::path::Path;

use acstor_fuse::SessionState;
use acstor_testkit::pages::{literal_rows, table_rows};

const SOURCES: [&str; 6] = [
    include_str!("fuse_attributes.rs"),
    include_str!("fuse_faults.rs"),
    include_str!("fuse_hostile.rs"),
    include_str!("fuse_kill.rs"),
    include_str!("fuse_prepare.rs"),
    include_str!("fuse_semantics.rs"),
];

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
    let path = root.join("../../doc/source/reference").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words with single blanks and without the marks of literals.
fn plain(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Test and claim of every test of the sources.
fn claims_of_tests() -> BTreeMap<String, String> {
    let mut claims = BTreeMap::new();
    let mut comment = String::new();
    for line in SOURCES.iter().flat_map(|source| source.lines()) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push_str(text);
        } else if let Some(rest) = line.strip_prefix("fn test_") {
            let name = rest.split('(').next().unwrap();
            let claim = plain(&comment).trim_matches('"').to_owned();
            claims.insert(format!("test_{name}"), claim);
        }
        if !line.starts_with("///") && !line.starts_with('#') {
            comment.clear();
        }
    }
    claims
}

/// Cells of every row of the page's tables.
fn rows(page: &str) -> Vec<Vec<String>> {
    table_rows(page).iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect()
}

#[test]
fn every_claim_of_the_page_has_its_test() {
    let page = rows(&page("protocols/fuse-semantics.rst"));
    let on_page: BTreeMap<String, String> = page
        .into_iter()
        .filter(|row| row.len() == 2 && row[1].starts_with("test_"))
        .map(|row| (row[1].clone(), row[0].clone()))
        .collect();
    let tested = claims_of_tests();
    assert!(tested.len() > 40, "{}", tested.len());
    assert_eq!(on_page, tested);
}

#[test]
fn the_transitions_of_the_page_are_those_of_the_code() {
    let mut on_page: Vec<[String; 2]> = literal_rows(&page("state-machines/fuse-session.rst"));
    let mut in_code = Vec::new();
    for from in SessionState::ALL {
        let to = SessionState::ALL.into_iter().filter(|&to| from.is_transition_valid(to));
        in_code.extend(to.map(|to| [format!("{from:?}"), format!("{to:?}")]));
    }
    on_page.sort();
    in_code.sort();
    assert_eq!(on_page, in_code);
}
