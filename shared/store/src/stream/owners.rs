//! The owners, names, labels and automatic freeze rules of agents. They are read strongly consistent after the changes,
//! and used for one batch of changes only. A previous owner therefore never receives an event that occurred after the
//! ownership transfer.

use crate::codec::{
    backoff::Backoff,
    fault::store_error,
    item::{read_field, read_optional_field},
    key::Key,
    ledger::Ledger,
};
use aws_sdk_dynamodb::types::KeysAndAttributes;
use purser_domain::{AgentId, AutomaticFreeze, Error, FormerOwner, Labels, PastOwner, Result, Rule, UserId};
use std::collections::{BTreeSet, HashMap};

/// The owners, names, labels and automatic freeze rules of some agents at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Owners(HashMap<AgentId, OwnedAgent>);

/// An agent's owner, name, labels and automatic freeze rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedAgent {
    /// The agent's current owner.
    pub owner: UserId,
    /// The agent's name.
    pub name: String,
    /// The labels by which users group agents, as pairs of key and value.
    pub labels: Labels,
    /// The agent's former owners, earliest first.
    pub former_owners: Vec<FormerOwner>,
    /// The agent's automatic freeze rule; `None` also if the rules can't be read, because then the agent can't pay.
    pub automatic_freeze: Option<AutomaticFreeze>,
}

impl OwnedAgent {
    /// Returns the owner after this number of ownership transfers, and the agent's name and labels at that time.
    pub(crate) fn owner_after_transfers(&self, transfers: u32) -> Option<(UserId, PastOwner<'_>)> {
        let now = PastOwner {
            owner: self.owner.as_str(),
            name: &self.name,
            labels: &self.labels,
        };
        let then = now.past_owner_after_transfers(transfers, &self.former_owners);
        Some((UserId::parse(then.owner)?, then))
    }
}

impl Owners {
    /// Returns an agent's data, if the agent exists and the record could be read.
    pub fn find(&self, agent: AgentId) -> Option<&OwnedAgent> {
        self.0.get(&agent)
    }
}

/// The maximum number of keys in one `BatchGetItem` (API reference).
const BATCH: usize = 100;
const READING: &str = "reading agents' owners";

impl Ledger {
    /// Reads the owners, names, labels and automatic freeze rules of these agents. Takes one read unit per agent.
    pub async fn read_owners(&self, agents: &BTreeSet<AgentId>) -> Result<Owners> {
        let mut owners = HashMap::new();
        let mut keys: Vec<_> = agents.iter().map(|agent| Key::agent(*agent).attributes()).collect();
        let mut backoff = Backoff::new();
        while !keys.is_empty() {
            let rest = keys.split_off(keys.len().min(BATCH));
            let batch = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .projection_expression("pk, sk, #owner, #name, #labels, #rules, former")
                .expression_attribute_names("#owner", "owner")
                .expression_attribute_names("#name", "name")
                .expression_attribute_names("#labels", "labels")
                .expression_attribute_names("#rules", "rules")
                .consistent_read(true);
            let batch = batch.build().map_err(|error| Error::internal(READING, error))?;
            let request = HashMap::from([(self.table.to_string(), batch)]);
            let response = self.db.batch_get_item().set_request_items(Some(request)).send().await;
            let response = response.map_err(store_error(READING))?;
            for item in response.responses.into_iter().flat_map(HashMap::into_values).flatten() {
                // An agent whose record can't be read is omitted, so only this agent's changes are quarantined.
                if let (Ok(agent), Some(owner), Some(name), Some(labels), Some(former)) = (
                    self.parse_agent_in_key(&item),
                    read_field(&item, "owner"),
                    read_field(&item, "name"),
                    read_optional_field(&item, "labels"),
                    read_optional_field(&item, "former"),
                ) {
                    let labels = labels.unwrap_or_default();
                    let rules: Option<Vec<Rule>> = read_field(&item, "rules");
                    let owned = OwnedAgent {
                        owner,
                        name,
                        labels,
                        former_owners: former.unwrap_or_default(),
                        automatic_freeze: rules.as_deref().and_then(AutomaticFreeze::find_in_rules),
                    };
                    owners.insert(agent, owned);
                }
            }
            let left = response.unprocessed_keys.into_iter().flat_map(HashMap::into_values);
            keys = left.flat_map(|left| left.keys).collect();
            if !keys.is_empty() {
                backoff.wait_for_retry().await?;
            }
            keys.extend(rest);
        }
        Ok(Owners(owners))
    }
}
