//! The agent that a page is about, which a person names in a text field: by its name, a part of it, or its id.
//!
//! A name is looked up among the newest agents that are not archived, like the search of the table. Any other agent is
//! found by its id, and its own page leads to the pages about it.

use crate::agents::listing::AgentFilter;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use maud::{Markup, html};
use purser_api::Query;
use purser_domain::{AgentId, Result, visible};
use purser_store::AgentOrder;

/// What a query says about the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedAgent {
    /// The agent of a link, or the one that the field named before.
    pub(crate) id: Option<AgentId>,
    /// The text of the field.
    pub(crate) text: Option<String>,
}

impl NamedAgent {
    /// Reads the parameters of [`AgentChoice::field`].
    pub(crate) fn from_query(query: &mut Query) -> Self {
        Self {
            id: query.read("agent_id", AgentId::parse, "must be a UUID"),
            text: query.text("agent"),
        }
    }
}

/// The agent that was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentChoice {
    /// The agent; `None` for all, or while the text does not name one.
    pub(crate) id: Option<AgentId>,
    /// The agent's record, if it is the person's.
    pub(crate) agent: Option<OwnedAgent>,
    text: String,
    /// The agents that a text fits which does not name one.
    found: Option<Vec<OwnedAgent>>,
}

impl AgentChoice {
    /// Whether a text does not name one agent, so that the page has nothing to show.
    pub(crate) const fn is_open(&self) -> bool {
        self.found.is_some()
    }

    /// The text field.
    pub(crate) fn field(&self, label: &str) -> Markup {
        html! {
            @if let Some(id) = self.id { input type="hidden" name="agent_id" value=(id); }
            div.field {
                label for="filter-agent" { (label) }
                input id="filter-agent" type="text" name="agent" value=(self.text) maxlength="100" autocomplete="off"
                    spellcheck="false";
            }
        }
    }

    /// The question which agent is meant. `address` returns the URL of the page about an agent.
    pub(crate) fn question(&self, address: impl Fn(AgentId) -> String) -> Markup {
        html! {
            @match self.found.as_deref() {
                None => {},
                Some([]) => p.message.warn { "None of your newest agents matches “" (self.text) "”. An older one is found by its ID." },
                Some(found) => div.message.warn {
                    p { "Which agent?" }
                    ul { @for owned in found { li { a href=(address(owned.agent().id)) { (visible(&owned.agent().name)) } } } }
                },
            }
        }
    }
}

impl People {
    /// The agent that a query names.
    pub(crate) async fn choose_agent(&self, person: &Caller, named: NamedAgent) -> Result<AgentChoice> {
        let (mut id, text) = (named.id, named.text.unwrap_or_default());
        let text = text.trim();
        if let Some(typed) = AgentId::parse(text) {
            id = Some(typed);
        }
        let before = match id {
            Some(id) => self.own_agents(person, vec![id]).await?.pop(),
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
        let mut found = self.find_agents_by_name(person, text).await?;
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

    /// The agents with this name, or else those whose name contains the text.
    pub(crate) async fn find_agents_by_name(&self, person: &Caller, text: &str) -> Result<Vec<OwnedAgent>> {
        /// The maximum number of agents that a question lists.
        const LISTED: usize = 10;
        let filter = AgentFilter {
            text: text.to_owned(),
            ..AgentFilter::default()
        };
        let found = self.list_agents(person, &filter, AgentOrder::NewestFirst, None, 100);
        let (mut exact, mut rest): (Vec<OwnedAgent>, Vec<OwnedAgent>) = found
            .await?
            .items
            .into_iter()
            .partition(|owned| owned.agent().name.to_lowercase() == text.to_lowercase());
        if exact.is_empty() {
            rest.truncate(LISTED);
            return Ok(rest);
        }
        exact.truncate(LISTED);
        Ok(exact)
    }
}
