//! Exports: all rows of a list, for all agents of a person or for one.
//!
//! The rows are sorted by agent id, and each agent's rows are newest first. A list merged by time would read each
//! agent's rows again for each page. The number of reads therefore grows only with the size of the file, and memory
//! holds one page of a few agents at a time. An export ends when its file is full, or when it has reached its maximum
//! of agents or pages. It then returns the position at which the next one continues.

use crate::caller::Caller;
use crate::several::several;
use crate::state::People;
use purser_domain::{Agent, AgentId, Result};
use purser_store::{Page, PageRequest, READ_AT_ONCE};
use uuid::Uuid;

/// The position at which an export continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportPlace {
    /// The agent whose rows are next.
    pub(crate) agent: AgentId,
    /// The position in the agent's rows; `None` for its newest row.
    pub(crate) before: Option<Uuid>,
}

impl ExportPlace {
    const fn of(agent: AgentId) -> Self {
        Self { agent, before: None }
    }
}

/// The number of agents whose first pages are read together.
const TOGETHER: usize = 25;
/// The maximum number of agents in one file. With eight agents at once and ten reads for each, they take some seconds.
const MOST_AGENTS: usize = 500;
/// The maximum number of pages after an agent's first, which are read one after another.
const MOST_PAGES: u32 = 100;

impl People {
    /// Reads the rows of the person's agents, or of one, with `read`, and passes them to `write` until that returns
    /// that there is no more room. Returns the position at which to continue; `None` at the end.
    pub(crate) async fn export<T, F>(
        &self,
        person: &Caller,
        only: Option<AgentId>,
        start: Option<ExportPlace>,
        read: impl Fn(AgentId, PageRequest<Uuid>) -> F,
        mut write: impl FnMut(&Agent, &[T]) -> bool,
    ) -> Result<Option<ExportPlace>>
    where
        F: Future<Output = Result<Page<T, Uuid>>> + Send + 'static,
        T: Send + 'static,
    {
        let slice = |before| PageRequest {
            before,
            limit: READ_AT_ONCE,
        };
        let ids = self.exported(person, only, start).await?;
        let mut pages = 0_u32;
        let (now, later) = ids.split_at_checked(MOST_AGENTS).unwrap_or((&ids, &[]));
        for some in now.chunks(TOGETHER) {
            let mut own = self.own_agents(person, some.to_vec()).await?;
            own.sort_by_key(|owned| owned.agent().id);
            let some: Vec<AgentId> = own.iter().map(|owned| owned.agent().id).collect();
            let firsts = several(some, |agent| {
                let place = start.filter(|start| start.agent == agent);
                read(agent, slice(place.and_then(|place| place.before)))
            });
            for (owned, mut page) in own.iter().zip(firsts.await?) {
                let agent = owned.agent();
                loop {
                    let has_room = write(agent, &page.items);
                    let Some(before) = page.next else {
                        if has_room {
                            break;
                        }
                        return Ok(ids.iter().find(|id| **id > agent.id).copied().map(ExportPlace::of));
                    };
                    if !has_room || pages >= MOST_PAGES {
                        return Ok(Some(ExportPlace {
                            agent: agent.id,
                            before: Some(before),
                        }));
                    }
                    pages = pages.saturating_add(1);
                    page = read(agent.id, slice(Some(before))).await?;
                }
            }
        }
        Ok(later.first().copied().map(ExportPlace::of))
    }

    /// The agents that are still to be exported, in order of their ids.
    async fn exported(
        &self,
        person: &Caller,
        only: Option<AgentId>,
        start: Option<ExportPlace>,
    ) -> Result<Vec<AgentId>> {
        let mut ids = match only {
            Some(id) => vec![self.own_agent(person, id).await?.agent().id],
            None => self.ledger.ids_of_agents(person.id.as_str(), None).await?,
        };
        ids.retain(|id| start.is_none_or(|start| *id >= start.agent));
        ids.sort_unstable();
        Ok(ids)
    }
}
