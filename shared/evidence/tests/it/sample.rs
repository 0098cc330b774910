//! The test vectors, test keys, and a log in memory.

use purser_evidence::{
    AppendResult, Checkpoint, Edge, KeyType, NoteSigner, Seed, StatementKey, StatementKind, TilePath, TileReader,
    TreeHead,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::convert::Infallible;
use zeroize::Zeroizing;

pub(crate) const ORIGIN: &str = "log.example/decisions";

/// Returns the vectors in `vectors.json`, which implementations in Go, Python, Rust and JavaScript accept.
pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub(crate) fn seed(byte: u8) -> Seed {
    Seed::new(Zeroizing::new([byte; 32]))
}

pub(crate) fn statement_key() -> StatementKey {
    StatementKey::new(&seed(1)).unwrap()
}

pub(crate) fn log_signer() -> NoteSigner {
    NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2)).unwrap()
}

pub(crate) fn witness(number: u8) -> NoteSigner {
    let name = format!("witness.example/{number}");
    NoteSigner::new(&name, KeyType::Cosignature, &seed(100 + number)).unwrap()
}

pub(crate) fn statement(number: usize) -> String {
    let payload = format!(r#"{{"id":{number}}}"#);
    statement_key()
        .sign(StatementKind::Decision, payload.as_bytes())
        .unwrap()
}

/// The objects of a log, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects(pub(crate) BTreeMap<TilePath, Vec<u8>>);

impl Objects {
    pub(crate) fn write(&mut self, appended: &AppendResult) {
        let objects = appended.tiles.iter().chain(&appended.bundles).cloned();
        self.0.extend(objects);
    }
}

impl TileReader for Objects {
    type Error = Infallible;

    async fn get(&self, path: &TilePath) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(path).cloned())
    }
}

/// Returns a log of these entries, appended at once.
pub(crate) fn log_of<T: AsRef<[u8]>>(entries: &[T]) -> (Objects, TreeHead) {
    let appended = Edge::empty().append_entries(entries).unwrap();
    let mut objects = Objects::default();
    objects.write(&appended);
    (objects, appended.head)
}

pub(crate) fn checkpoint(head: TreeHead) -> String {
    Checkpoint::new(ORIGIN, head)
        .unwrap()
        .sign_as_note(&log_signer())
        .unwrap()
}
