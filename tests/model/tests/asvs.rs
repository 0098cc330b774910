//! `docs/asvs.md`: each requirement of OWASP ASVS 5.0.0, levels 1 and 2, is in one row, and what a row names exists.
//!
//! Whether what is named holds the requirement is for readers to judge.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The requirements of levels 1 and 2, section by section, in which they are numbered from 1 without a gap.
const REQUIREMENTS: &str = "
    1.1.1-2 1.2.1-9 1.3.1-11 1.4.1-3 1.5.1-2
    2.1.1-3 2.2.1-3 2.3.1-4 2.4.1-1
    3.2.1-2 3.3.1-4 3.4.1-6 3.5.1-5 3.7.1-2
    4.1.1-3 4.2.1-1 4.3.1-2 4.4.1-4
    5.1.1-1 5.2.1-3 5.3.1-2 5.4.1-3
    6.1.1-3 6.2.1-12 6.3.1-4 6.4.1-4 6.5.1-5 6.6.1-3 6.8.1-4
    7.1.1-3 7.2.1-4 7.3.1-2 7.4.1-5 7.5.1-2 7.6.1-2
    8.1.1-2 8.2.1-3 8.3.1-1 8.4.1-1
    9.1.1-3 9.2.1-4
    10.1.1-2 10.2.1-2 10.3.1-4 10.4.1-11 10.5.1-5 10.6.1-2 10.7.1-3
    11.1.1-2 11.2.1-3 11.3.1-3 11.4.1-4 11.5.1-1 11.6.1-1
    12.1.1-3 12.2.1-2 12.3.1-4
    13.1.1-1 13.2.1-5 13.3.1-2 13.4.1-5
    14.1.1-2 14.2.1-4 14.3.1-3
    15.1.1-3 15.2.1-3 15.3.1-7
    16.1.1-1 16.2.1-5 16.3.1-4 16.4.1-3 16.5.1-3
    17.1.1-1 17.2.1-4 17.3.1-2
";

const STATES: [&str; 6] = ["AWS", "gap", "held", "issuer", "n/a", "partly"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text_of(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// All ids, in their order.
fn known() -> Vec<String> {
    let mut ids = Vec::new();
    for range in REQUIREMENTS.split_whitespace() {
        let (section, numbers) = range.rsplit_once('.').unwrap();
        let last: u32 = numbers.strip_prefix("1-").unwrap().parse().unwrap();
        ids.extend((1..=last).map(|number| format!("{section}.{number}")));
    }
    ids
}

/// The cells of a requirement's row: ids, subject, state, and what holds them.
fn cells(line: &str) -> Option<[&str; 4]> {
    let row = line.strip_prefix("| ")?.trim_end_matches('|');
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let is_of_ids = row.starts_with(|letter: char| letter.is_ascii_digit());
    cells.try_into().ok().filter(|_| is_of_ids)
}

/// The ids of a row: `1.2.1`, and `1.2.6-1.2.9` for these and all between.
fn ids_of<'a>(cell: &str, known: &'a [String]) -> Result<Vec<&'a str>, String> {
    let place = |id: &str| {
        known
            .iter()
            .position(|one| one == id)
            .ok_or_else(|| format!("unknown: {id}"))
    };
    let mut ids = Vec::new();
    for part in cell.split(", ") {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = known
            .get(place(first)?..=place(last)?)
            .filter(|range| !range.is_empty());
        ids.extend(
            range
                .ok_or_else(|| format!("backwards: {part}"))?
                .iter()
                .map(String::as_str),
        );
    }
    Ok(ids)
}

/// The sources of tests, by the name of their file.
fn sources() -> BTreeMap<String, String> {
    fn add(folder: &Path, all: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() {
                if !["target", "node_modules"].contains(&name.as_str()) {
                    add(&path, all);
                }
            } else if [".rs", "_test.py"].iter().any(|end| name.ends_with(end)) {
                *all.entry(name).or_default() += &fs::read_to_string(&path).unwrap();
            }
        }
    }
    let mut all = BTreeMap::new();
    for folder in ["clients", "functions", "infra", "shared", "tests"] {
        add(&root().join(folder), &mut all);
    }
    all.insert("template.yaml".to_owned(), text_of("template.yaml"));
    all
}

/// Whether what is quoted exists: a test, a text of the template, or a file. Other quotes name nothing.
fn exists(quoted: &str, sources: &BTreeMap<String, String>) -> bool {
    match quoted.split_once("::") {
        Some((file, name)) => sources.get(file).is_some_and(|source| match file.rsplit_once('.') {
            Some((_, "rs")) => source.contains(&format!("fn {name}(")),
            Some((_, "py")) => source.contains(&format!("def {name}(")),
            _ => source.contains(name),
        }),
        None if quoted.starts_with('/') || quoted.contains(' ') => true,
        None if quoted.contains('/') || quoted.ends_with(".md") => root().join(quoted).exists(),
        None => true,
    }
}

/// The sections that a text cites, each with its page: "decisions §9.8, §9.18".
fn citations(text: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut page = None;
    for word in text.split_whitespace().map(|word| word.trim_start_matches('(')) {
        match (word, word.strip_prefix('§')) {
            ("guarantees" | "decisions" | "deploy", _) => page = Some(word),
            ("and", _) => {}
            (_, Some(number)) => {
                let number = number.trim_end_matches(|letter: char| !letter.is_ascii_digit());
                found.push((page.unwrap_or("no page"), number.to_owned()));
            }
            _ => page = None,
        }
    }
    found
}

/// Whether a page has this section, or this number of the section's list: `14`, `14.18`.
fn has_section(page: &str, number: &str) -> bool {
    let (section, item) = number.split_once('.').unwrap_or((number, ""));
    let mut sections = page.split("\n## ");
    let Some(section) = sections.find(|text| text.starts_with(&format!("{section}. "))) else {
        return false;
    };
    item.is_empty() || section.lines().any(|line| line.starts_with(&format!("{item}. ")))
}

#[test]
fn each_requirement_has_one_row() {
    let (page, known) = (text_of("docs/asvs.md"), known());
    assert_eq!(known.len(), 253);
    let mut seen = BTreeSet::new();
    for [cell, _, state, _] in page.lines().filter_map(cells) {
        for id in ids_of(cell, &known).unwrap() {
            assert!(seen.insert(id), "twice: {id}");
        }
        assert!(STATES.contains(&state), "{cell}: {state}");
    }
    let missing: Vec<&String> = known.iter().filter(|id| !seen.contains(id.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_the_rows_name_exists() {
    let (page, sources) = (text_of("docs/asvs.md"), sources());
    let pages = ["guarantees", "decisions", "deploy"].map(|name| (name, text_of(&format!("docs/{name}.md"))));
    let pages = BTreeMap::from(pages);
    let mut tests = 0;
    for [ids, _, state, by] in page.lines().filter_map(cells) {
        for quoted in by.split('`').skip(1).step_by(2) {
            assert!(exists(quoted, &sources), "{ids}: {quoted}");
            tests += usize::from(quoted.contains("::"));
        }
        for (page, number) in citations(by) {
            assert!(has_section(&pages[page], &number), "{ids}: {page} §{number}");
        }
        assert!(!by.is_empty() || state == "issuer", "{ids} names nothing");
    }
    assert!(tests > 100, "only {tests} tests are named");
}

/// The checks find what they are for.
#[test]
fn a_wrong_row_of_the_table_is_found() {
    let (known, sources) = (known(), sources());
    assert_eq!(
        ids_of("4.4.3-5.1.1, 1.1.1", &known).unwrap(),
        ["4.4.3", "4.4.4", "5.1.1", "1.1.1"]
    );
    for cell in ["1.2.10", "1.1.1 ", "1.1.2-1.1.1", ""] {
        assert!(ids_of(cell, &known).is_err(), "{cell}");
    }
    assert!(exists("asvs.rs::each_requirement_has_one_row", &sources));
    for quoted in [
        "router.rs::each_requirement_has_one_row",
        "nowhere.rs::each_requirement_has_one_row",
        "asvs.rs::each_requirement_has",
        "template.yaml::NoSuchParameter",
        "tests/nowhere.rs",
    ] {
        assert!(!exists(quoted, &sources), "{quoted}");
    }
    assert_eq!(
        citations("x (decisions §9.8, §14.14); guarantees §1 and §2; §3"),
        [
            ("decisions", "9.8"),
            ("decisions", "14.14"),
            ("guarantees", "1"),
            ("guarantees", "2"),
            ("guarantees", "3")
        ]
        .map(|(page, number)| (page, number.to_owned()))
    );
    let page = "# T\n\n## 1. One\n\n1. **A**\n\n## 2. Two\n\n2. **B**\n";
    assert!(has_section(page, "1") && has_section(page, "1.1") && has_section(page, "2.2"));
    assert!(!has_section(page, "3") && !has_section(page, "1.2"));
}
