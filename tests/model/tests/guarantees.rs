//! `docs/guarantees.md`: each guarantee names its proof, and each proof is there; `docs/threat-model.md` cites each of its
//! sections.
//!
//! A proof is a test, a law of this model, the simulation, the role table, or a command. A guarantee without one does not
//! count.

use purser_model::law::Law;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text_of(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// All Rust sources.
fn sources() -> String {
    fn add(folder: &Path, all: &mut String) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && !["target", "node_modules"].iter().any(|skipped| name == *skipped) {
                add(&path, all);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                all.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut all = String::new();
    for folder in ["clients", "functions", "fuzz", "infra", "shared", "tests"] {
        add(&root().join(folder), &mut all);
    }
    all
}

/// The text in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether this is a test's name: a sentence of many words.
fn is_test(word: &str) -> bool {
    word.matches('_').count() > 3 && !word.contains(' ')
}

/// The numbers of the laws that a text names: "model laws 1 to 6 and 15".
fn laws(text: &str) -> Vec<u32> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found = Vec::new();
    for (place, pair) in words.windows(2).enumerate() {
        if !matches!(pair, ["model", "law" | "laws"]) {
            continue;
        }
        let mut is_range = false;
        for word in &words[place + 2..] {
            let digits = word.trim_matches(|letter: char| !letter.is_ascii_digit());
            match (*word, digits.parse::<u32>()) {
                (_, Ok(number)) if word.starts_with(digits) => {
                    let first = if is_range {
                        found.last().map_or(number, |last| last + 1)
                    } else {
                        number
                    };
                    found.extend(first..=number);
                    is_range = false;
                }
                ("to", _) => is_range = true,
                ("and", _) => {}
                _ => break,
            }
        }
    }
    found
}

/// The guarantees of sections 1 to 6, each in one line.
fn guarantees(page: &str) -> Vec<String> {
    let page = page.split("\n## 7.").next().unwrap();
    let mut found: Vec<String> = Vec::new();
    for line in page.lines() {
        match (line.strip_prefix("- "), found.last_mut()) {
            (Some(first), _) => found.push(first.to_owned()),
            (None, Some(last)) if line.starts_with("  ") => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => {}
        }
    }
    found
}

fn names_its_proof(guarantee: &str) -> bool {
    let is_proof =
        |word: &str| is_test(word) || word.starts_with("cargo ") || word.contains('/') && root().join(word).exists();
    let others = ["the simulation", "the role table", "the planted bugs"];
    quoted(guarantee).any(is_proof)
        || !laws(guarantee).is_empty()
        || others.iter().any(|other| guarantee.to_lowercase().contains(other))
}

#[test]
fn every_guarantee_names_its_proof() {
    let page = text_of("docs/guarantees.md");
    let guarantees = guarantees(&page);
    assert!(guarantees.len() > 60, "{}", guarantees.len());
    let bare: Vec<&String> = guarantees
        .iter()
        .filter(|guarantee| !names_its_proof(guarantee))
        .collect();
    assert!(bare.is_empty(), "without a proof: {bare:#?}");
}

#[test]
fn every_proof_of_a_guarantee_exists() {
    let sources = sources();
    let mut tests = 0;
    for name in ["docs/guarantees.md", "docs/threat-model.md"] {
        let page = text_of(name);
        let named: BTreeSet<&str> = quoted(&page).filter(|word| is_test(word)).collect();
        let missing: Vec<&&str> = named
            .iter()
            .filter(|test| !sources.contains(&format!("fn {test}(")))
            .collect();
        assert!(missing.is_empty(), "{name}: {missing:#?}");
        tests += named.len();
    }
    assert!(tests > 150, "only {tests} tests are named");
}

/// The guarantees name each law, and no other.
#[test]
fn the_guarantees_name_the_models_laws() {
    let number = |law: &Law| -> u32 { law.words().split(':').next().unwrap().parse().unwrap() };
    let known: BTreeSet<u32> = Law::ALL.iter().map(number).collect();
    let named: BTreeSet<u32> = laws(&text_of("docs/guarantees.md")).into_iter().collect();
    assert_eq!(named, known);
}

#[test]
fn the_threat_model_cites_every_section() {
    let (page, guarantees) = (text_of("docs/threat-model.md"), text_of("docs/guarantees.md"));
    let sections = guarantees
        .lines()
        .filter_map(|line| line.strip_prefix("## ")?.split_once('.'));
    let uncited: Vec<&str> = sections
        .map(|(number, _)| number)
        .filter(|number| !page.contains(&format!("§{number}")))
        .collect();
    assert!(uncited.is_empty(), "{uncited:?}");
}

/// The checks find what they are for.
#[test]
fn a_guarantee_without_proof_is_found() {
    assert!(!names_its_proof("No payment is lost, whatever happens."));
    assert!(!names_its_proof("No payment of `payments` is lost (`some_field`)."));
    assert!(names_its_proof("None is lost: `killed_payouts_are_made_exactly_once`"));
    assert!(names_its_proof("None is lost. Model law 5,"));
    assert_eq!(
        laws("so: model laws 1 to 3, 6 and 15, the simulation. Model law 9,"),
        [1, 2, 3, 6, 15, 9]
    );
    let page = "## 1\n- One\n  and more.\n- Two.\n\n## 7. All\n- Three.\n";
    assert_eq!(guarantees(page), ["One and more.", "Two."]);
}
