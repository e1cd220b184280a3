//! The page of all findings, held against the codes that there are.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeSet;

use memtrack::diagnosis::{FindingCode, Numbers};

const PAGE: &str = include_str!("../../docs/findings.md");

/// The rows of the tables whose first cell is a code: the code, and all that stands in backquotes in the third cell.
fn rows() -> Vec<(String, BTreeSet<String>)> {
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    PAGE.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').collect();
            let code = cells[0].split('`').next()?.to_owned();
            (cells.len() >= 4).then(|| (code, quoted(cells[2]).into_iter().collect()))
        })
        .collect()
}

#[test]
fn every_code_has_its_row_with_its_figures_and_no_row_is_of_another() {
    let rows = rows();
    for code in FindingCode::ALL {
        let mut found = rows.iter().filter(|(row, _)| row == code.as_str());
        let (_, figures) = found.next().unwrap_or_else(|| panic!("{code} has no row"));
        let names: BTreeSet<String> = Numbers::names(*code).iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(*figures, names, "{code}");
        assert!(found.next().is_none(), "{code} has two rows");
    }
    assert_eq!(rows.len(), FindingCode::ALL.len());
}

#[test]
fn codes_are_words_with_hyphens_and_no_two_are_the_same() {
    let texts: BTreeSet<&str> = FindingCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(texts.len(), FindingCode::ALL.len());
    assert!(texts.iter().all(|text| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
}

#[test]
fn the_page_names_what_people_know_by_heart() {
    for row in [
        "the driver shows much, little is allocated",
        "allocated grows",
        "reserved is far above allocated",
        "out of memory with memory free",
    ] {
        assert!(PAGE.contains(&format!("| {row} |")), "{row}");
    }
}
