//! The text field in which a user chooses an agent by name or id. Names match only the newest agents.

use crate::agents::listing::AgentFilter;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use maud::{Markup, html};
use purser_api::Query;
use purser_domain::{AgentId, Result, escape_hidden_characters};
use purser_store::AgentOrder;

/// The query parameters that select an agent, by id or by a text to search for.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedAgent {
    /// The parameter `agent_id`, which links and the search form's hidden field contain.
    pub(crate) id: Option<AgentId>,
    pub(crate) text: Option<String>,
}

impl NamedAgent {
    pub(crate) fn from_query(query: &mut Query) -> Self {
        Self {
            id: query.parse_with("agent_id", AgentId::parse, "must be a UUID"),
            text: query.parse_text("agent"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AgentChoice {
    /// `None` if the user has not chosen exactly one agent.
    pub(crate) id: Option<AgentId>,
    /// `None` if the agent does not belong to the user.
    pub(crate) agent: Option<OwnedAgent>,
    text: String,
    /// The agents that match an ambiguous text.
    found: Option<Vec<OwnedAgent>>,
}

impl AgentChoice {
    /// Returns whether the text matches no agent or several agents.
    pub(crate) const fn is_ambiguous(&self) -> bool {
        self.found.is_some()
    }

    /// Renders a text field for the agent's name or id, and a hidden field with the chosen agent's id.
    pub(crate) fn search_field(&self, label: &str) -> Markup {
        html! {
            @if let Some(id) = self.id { input type="hidden" name="agent_id" value=(id); }
            div.field {
                label for="filter-agent" { (label) }
                input id="filter-agent" type="text" name="agent" value=(self.text) maxlength="100" autocomplete="off"
                    spellcheck="false";
            }
        }
    }

    /// Renders the matching agents as links. `address` returns the page's URL for an agent.
    pub(crate) fn matching_agent_links(&self, address: impl Fn(AgentId) -> String) -> Markup {
        html! {
            @match self.found.as_deref() {
                None => {},
                Some([]) => p.message.warn { "None of your newest agents matches “" (self.text) "”. An older one is found by its ID." },
                Some(found) => div.message.warn {
                    p { "Which agent?" }
                    ul { @for owned in found { li { a href=(address(owned.agent().id)) { (escape_hidden_characters(&owned.agent().name)) } } } }
                },
            }
        }
    }
}

impl People {
    pub(crate) async fn resolve_named_agent(&self, user: &Caller, agent: NamedAgent) -> Result<AgentChoice> {
        let (mut id, text) = (agent.id, agent.text.unwrap_or_default());
        let text = text.trim();
        if let Some(typed) = AgentId::parse(text) {
            id = Some(typed);
        }
        let before = match id {
            Some(id) => self.read_own_agents(user, vec![id]).await?.pop(),
            None => None,
        };
        let name = before.as_ref().map(|owned| owned.agent().name.clone());
        let is_kept = text.is_empty() || AgentId::parse(text).is_some() || name.as_deref() == Some(text);
        if let Some(id) = id.filter(|_| is_kept) {
            return Ok(AgentChoice {
                id: Some(id),
                agent: before,
                text: name.unwrap_or_else(|| id.to_string()),
                found: None,
            });
        }
        if text.is_empty() {
            return Ok(AgentChoice::default());
        }
        let mut found = self.find_agents_by_name(user, text).await?;
        if found.len() == 1
            && let Some(owned) = found.pop()
        {
            return Ok(AgentChoice {
                id: Some(owned.agent().id),
                text: owned.agent().name.clone(),
                agent: Some(owned),
                found: None,
            });
        }
        Ok(AgentChoice {
            text: text.to_owned(),
            found: Some(found),
            ..AgentChoice::default()
        })
    }

    /// Returns agents with exactly this name. If no agent has the name, returns agents whose name or id
    /// contains the text. Ignores case, searches only the newest agents, and returns at most ten.
    pub(crate) async fn find_agents_by_name(&self, user: &Caller, text: &str) -> Result<Vec<OwnedAgent>> {
        /// The maximum number of matching agents that the page lists.
        const MAX_LISTED: usize = 10;
        let filter = AgentFilter {
            text: text.to_owned(),
            ..AgentFilter::default()
        };
        let found = self.list_agents(user, &filter, AgentOrder::NewestFirst, None, 100);
        let (mut exact, mut rest): (Vec<OwnedAgent>, Vec<OwnedAgent>) = found
            .await?
            .items
            .into_iter()
            .partition(|owned| owned.agent().name.to_lowercase() == text.to_lowercase());
        if exact.is_empty() {
            rest.truncate(MAX_LISTED);
            return Ok(rest);
        }
        exact.truncate(MAX_LISTED);
        Ok(exact)
    }
}
