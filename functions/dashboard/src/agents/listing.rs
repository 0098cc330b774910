//! Lists a user's agents. With a filter, a page can be short although more pages follow.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use purser_api::Query;
use purser_domain::{Agent, AgentStatus, LabelFilter, Result, TemplateName};
use purser_store::{AgentCursor, AgentOrder, Page};

pub(crate) const MAX_READ: u32 = 100;
/// The maximum number of records that are read until an agent is found.
pub(crate) const MAX_SEARCHED: u32 = 10 * MAX_READ;
/// The maximum length of a search text, in characters.
pub(crate) const MAX_SEARCH_CHARS: usize = 100;

/// The default filter selects all agents that are not archived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentFilter {
    /// A part of the agent's name or id, in any case. An empty text matches every agent.
    pub(crate) text: String,
    pub(crate) label: Option<LabelFilter>,
    pub(crate) status: Option<AgentStatus>,
    pub(crate) template: Option<TemplateName>,
    /// If true, selects only archived agents. If false, selects only the other agents.
    pub(crate) archived: bool,
}

impl AgentFilter {
    pub(crate) fn from_query(query: &mut Query) -> Self {
        let short = |text: &str| (text.chars().count() <= MAX_SEARCH_CHARS).then(|| text.to_owned());
        let text = query.parse_with("q", short, "must be a text of at most 100 characters");
        let archived = |text: &str| text.parse().ok();
        Self {
            text: text.unwrap_or_default(),
            label: query.parse_with("label", LabelFilter::parse, LabelFilter::FORM),
            status: query.parse_with("status", AgentStatus::from_name, AgentStatus::allowed_names_message()),
            template: query.parse_with("template", TemplateName::parse, TemplateName::FORM),
            archived: query
                .parse_with("archived", archived, "must be true or false")
                .unwrap_or_default(),
        }
    }

    fn matches(&self, agent: &Agent) -> bool {
        let text = self.text.trim().to_lowercase();
        self.archived == agent.archived
            && self.status.is_none_or(|status| agent.status == status)
            && self.label.as_ref().is_none_or(|label| label.matches(&agent.labels))
            && self
                .template
                .as_ref()
                .is_none_or(|template| follows_template(agent, template))
            && (agent.name.to_lowercase().contains(&text) || agent.id.to_string().contains(&text))
    }

    /// Returns whether the filter may leave out many agents.
    fn has_conditions(&self) -> bool {
        *self != Self::default()
    }
}

pub(crate) fn follows_template(agent: &Agent, template: &TemplateName) -> bool {
    agent
        .template
        .as_ref()
        .is_some_and(|followed| followed.name == *template)
}

impl People {
    /// Lists up to `limit` of the user's agents, starting at the cursor `from`.
    pub(crate) async fn list_agents(
        &self,
        user: &Caller,
        filter: &AgentFilter,
        order: AgentOrder,
        from: Option<AgentCursor>,
        limit: u32,
    ) -> Result<Page<OwnedAgent, AgentCursor>> {
        let mut page = self.read_agent_page(user, filter, order, from, limit).await?;
        for _ in 1..MAX_SEARCHED / MAX_READ {
            if page.next.is_none() || !page.items.is_empty() {
                break;
            }
            page = self.read_agent_page(user, filter, order, page.next, limit).await?;
        }
        Ok(page)
    }

    async fn read_agent_page(
        &self,
        user: &Caller,
        filter: &AgentFilter,
        order: AgentOrder,
        from: Option<AgentCursor>,
        limit: u32,
    ) -> Result<Page<OwnedAgent, AgentCursor>> {
        // One more position shows whether another page follows.
        let more = MAX_READ.saturating_add(1);
        let mut places = self
            .ledger
            .read_agent_cursors(user.id.as_str(), order, from, more)
            .await?;
        let is_more = u32::try_from(places.len()).is_ok_and(|count| count > MAX_READ);
        let rest = if is_more { places.pop() } else { None };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // Without a filter, nearly every agent matches, so the first read needs only `limit` records.
        let at_once = if filter.has_conditions() { places.len() } else { limit };
        let (mut items, mut seen) = (Vec::new(), 0_usize);
        for batch in places.chunks(at_once.max(1)) {
            let read = self
                .read_own_agents(user, batch.iter().map(|place| place.id).collect())
                .await?;
            for place in batch {
                let owned = read.iter().find(|owned| owned.agent().id == place.id);
                let Some(owned) = owned.filter(|owned| filter.matches(owned.agent())) else {
                    continue;
                };
                if items.len() >= limit {
                    let next = Some(*place);
                    return Ok(Page { items, next });
                }
                items.push(owned.clone());
            }
            seen = seen.saturating_add(batch.len());
            if items.len() >= limit {
                let next = places.get(seen).copied().or(rest);
                return Ok(Page { items, next });
            }
        }
        Ok(Page { items, next: rest })
    }
}
