//! The approval queue's filter and position in the URL.

use crate::address::address;
use crate::cursor;
use crate::ui::paths;
use axum::http::Uri;
use purser_api::Query;
use purser_domain::AgentId;
use purser_store::ApprovalPlace;

/// The queue's filter and position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Selects only this agent's approvals.
    pub(crate) agent: Option<AgentId>,
    /// Selects the pending approvals that were created before this position.
    pub(crate) older: Option<ApprovalPlace>,
    /// Selects the decided approvals that were created before this position.
    pub(crate) before: Option<ApprovalPlace>,
    /// Selects only a few pending approvals, for the overview.
    pub(crate) is_brief: bool,
}

impl View {
    /// Parses the view in a URL. Returns `None` if a parameter is invalid. An empty parameter counts as absent.
    pub(crate) fn read(uri: &Uri) -> Option<Self> {
        let mut query = Query::from_uri(uri);
        let [agent, older, before] =
            ["agent_id", "older", "before"].map(|name| query.text(name).filter(|text| !text.is_empty()));
        let place = |text: Option<String>| text.map(|text| cursor::read_approval(&text).ok_or(())).transpose().ok();
        Some(Self {
            agent: agent.map(|text| AgentId::parse(&text).ok_or(())).transpose().ok()?,
            older: place(older)?,
            before: place(before)?,
            is_brief: query.text("brief").is_some_and(|text| text == "true"),
        })
    }

    /// The maximum number of pending approvals in this view.
    pub(crate) const fn most(self) -> u32 {
        if self.is_brief { 5 } else { 25 }
    }

    /// Returns the URL of `path` with this view's parameters.
    pub(crate) fn address(self, path: &str) -> String {
        let place = |place: Option<ApprovalPlace>| place.map(cursor::write_approval);
        address(
            path,
            [
                ("agent_id", self.agent.map(|agent| agent.to_string())),
                ("older", place(self.older)),
                ("before", place(self.before)),
                ("brief", self.is_brief.then(|| "true".to_owned())),
            ],
        )
    }

    /// Returns the queue's URL with this view's parameters.
    pub(crate) fn queue(self) -> String {
        let view = Self {
            is_brief: false,
            ..self
        };
        view.address(paths::APPROVALS)
    }
}
