//! Replays every file of the corpus through its fuzz target.

use purser_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn every_corpus_file_passes_its_fuzz_target() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let folder = corpus().join(name);
        let files = names_in(&folder);
        assert!(files.len() >= 5, "{name}: what is kept of it?");
        for file in files {
            let bytes = fs::read(folder.join(&file)).unwrap();
            if catch_unwind(|| target(&bytes)).is_err() {
                failed.push(format!("{name}/{file}"));
            }
        }
    }
    assert_eq!(failed, [""; 0], "the panics above say why");
}

#[test]
fn fuzz_targets_match_their_binaries_and_corpora() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&corpus()), targets);
    let sources = names_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets"));
    let sources: BTreeSet<String> = sources
        .iter()
        .map(|file| file.trim_end_matches(".rs").to_owned())
        .collect();
    assert_eq!(sources, targets);
}
