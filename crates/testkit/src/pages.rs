//! Names and tables of the pages of the documentation, for tests that compare a page with the code.

use std::collections::BTreeSet;

/// Metrics that a page names as literals, without the `_total` that an exporter appends to counters.
pub fn metric_names(page: &str) -> BTreeSet<&str> {
    page.split("``")
        .skip(1)
        .step_by(2)
        .filter(|word| word.starts_with("acstor_"))
        .map(|word| word.strip_suffix("_total").unwrap_or(word))
        .collect()
}

/// Rows of all list tables of a page, the heads among them: cells as they are written, in one line.
pub fn table_rows(page: &str) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut is_in_row = false;
    for line in page.lines() {
        if let Some(cell) = line.strip_prefix("   * - ") {
            rows.push(vec![cell.to_owned()]);
            is_in_row = true;
        } else if let Some(row) = rows.last_mut().filter(|_| is_in_row) {
            is_in_row = continued(row, line);
        }
    }
    rows
}

/// Takes a line as a further cell of a row, or as more of its last one; false: the row has ended.
fn continued(row: &mut Vec<String>, line: &str) -> bool {
    if let Some(cell) = line.strip_prefix("     - ") {
        row.push(cell.to_owned());
    } else if let Some((more, cell)) = line.strip_prefix("       ").zip(row.last_mut()) {
        cell.push(' ');
        cell.push_str(more);
    } else {
        return false;
    }
    true
}

/// First `N` cells of every row that begins with as many literals, without their marks.
pub fn literal_rows<const N: usize>(page: &str) -> Vec<[String; N]> {
    table_rows(page)
        .iter()
        .filter_map(|row| {
            let literals: Option<Vec<String>> = row.get(..N)?.iter().map(|c| literal(c)).collect();
            literals?.try_into().ok()
        })
        .collect()
}

/// The text of a cell that is one literal and nothing else.
fn literal(cell: &str) -> Option<String> {
    let inner = cell.strip_prefix("``")?.strip_suffix("``")?;
    (!inner.contains('`')).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
``acstor_reads_total`` and ``acstor_store_up``, read by ``read_all``; acstor_not.

.. list-table::

   * - State
     - Next state
   * - ``Free``
     - ``Filling``
     - an insert takes
       the slot
   * - ``Free`` or ``Verified``
     - ``Condemned``

     - no cell
";

    #[test]
    fn test_metric_names_are_literals_of_the_product() {
        assert_eq!(metric_names(PAGE), BTreeSet::from(["acstor_reads", "acstor_store_up"]));
    }

    #[test]
    fn test_table_rows_join_the_lines_of_a_cell() {
        let rows = table_rows(PAGE);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1], ["``Free``", "``Filling``", "an insert takes the slot"]);
        assert_eq!(rows[2], ["``Free`` or ``Verified``", "``Condemned``"]);
    }

    #[test]
    fn test_literal_rows_leave_heads_and_prose_out() {
        assert_eq!(literal_rows::<2>(PAGE), [["Free".to_owned(), "Filling".to_owned()]]);
        assert!(literal_rows::<3>(PAGE).is_empty());
    }
}
