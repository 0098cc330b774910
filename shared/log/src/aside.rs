//! What is not stated: the oldest pending change, and what was set aside because it can't be stated.

use crate::{
    objects::ObjectStore,
    pending::{PendingBatch, PendingFact, StoredFact},
    state::State,
};
use purser_domain::{Error, Result, Timestamp};
use serde::Deserialize;

/// The prefix of what could not be stated.
pub(crate) const ASIDE: &str = "aside/";
/// The object of a fact that could not be stated.
#[derive(Deserialize)]
pub(crate) struct Aside {
    pub(crate) fact: StoredFact,
    pub(crate) reason: String,
}

/// The shard of the facts that an operator asks to be stated after all.
const AGAIN: &str = "again";

/// The time of the oldest fact that is not stated yet; `None` if all are.
pub async fn oldest_pending(objects: &ObjectStore) -> Result<Option<Timestamp>> {
    let (state, _) = State::read(objects).await?;
    let mut times: Vec<Timestamp> = state.later().iter().map(|fact| fact.changed_at).collect();
    for shard in PendingBatch::shards(objects).await? {
        for place in PendingBatch::places(objects, &shard, 1).await? {
            let batch = PendingBatch::read(objects, &place).await?;
            let facts = batch.into_iter().flat_map(|batch| batch.facts);
            times.extend(facts.map(|fact| fact.changed_at));
        }
    }
    Ok(times.into_iter().min())
}

/// Makes up to a thousand facts that were set aside pending again, after their cause was repaired. Returns their
/// number.
pub async fn state_again(objects: &ObjectStore, now: Timestamp) -> Result<usize> {
    const READING: &str = "reading what was set aside";
    let (mut facts, mut keys) = (Vec::new(), Vec::new());
    for key in objects.list(ASIDE, None, 1_000).await? {
        let Some(object) = objects.get(&key).await? else {
            continue;
        };
        let aside: Option<Aside> = serde_json::from_slice(&object.bytes).ok();
        if let Some(mut fact) = aside.and_then(|aside| PendingFact::from_stored(&aside.fact)) {
            // Later than those of every earlier call.
            let number = i64::try_from(facts.len()).map_err(|error| Error::internal(READING, error))?;
            fact.sequence = format!("{:040}", now.micros().saturating_add(number));
            facts.push(fact);
            keys.push(key);
        }
    }
    let shard = AGAIN.to_owned();
    PendingBatch { shard, facts }.write(objects).await?;
    for key in &keys {
        objects.delete(key).await?;
    }
    Ok(keys.len())
}
