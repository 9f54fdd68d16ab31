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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "``acstor_reads_total`` and ``acstor_store_up``, read by ``read_all``; acstor_not.";

    #[test]
    fn test_metric_names_are_literals_of_the_product() {
        assert_eq!(metric_names(PAGE), BTreeSet::from(["acstor_reads", "acstor_store_up"]));
    }
}
