//! The table of limits, against its page.

use acstor_selection::limits::{Limit, table};

/// A row of the page: the name, the value with its unit, the meaning.
fn row(limit: &Limit) -> String {
    let unit = if limit.unit == "time" { String::new() } else { format!(" {}", limit.unit) };
    let (name, value) = (limit.name, &limit.value);
    words(&format!("* - ``{name}`` - {value}{unit} - {}", limit.meaning.replace('`', "``")))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn test_page_has_every_limit_with_its_value_and_its_meaning() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../doc/source/contributor/selection.rst");
    let page = words(&std::fs::read_to_string(path).unwrap());
    for limit in table() {
        let row = row(&limit);
        assert!(page.contains(&row), "not in the page:\n{row}");
    }
    let rows = page.matches("* - ``").count();
    assert_eq!(rows, table().len(), "rows of limits that do not exist");
}
