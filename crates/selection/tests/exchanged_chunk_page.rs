//! The table of the states of an exchanged chunk, against its page.

use acstor_selection::exchange::CHUNK_TRANSITIONS;
use acstor_testkit::pages::table_rows;

#[test]
fn test_table_is_the_one_of_the_page() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../doc/source/reference/state-machines/exchanged-chunk.rst"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let rows = table_rows(&page);
    let listed: Vec<Vec<String>> = rows[1..].iter().map(|row| row[..3].to_vec()).collect();
    let expected: Vec<Vec<String>> = CHUNK_TRANSITIONS
        .iter()
        .map(|(from, event, to)| {
            vec![format!("``{from:?}``"), format!("``{event:?}``"), format!("``{to:?}``")]
        })
        .collect();
    assert_eq!(listed, expected);
}
