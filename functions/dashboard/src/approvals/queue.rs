//! The approval queue's filter and position in the URL.

use crate::address::path_with_query;
use crate::cursor;
use crate::ui::paths;
use axum::http::Uri;
use purser_api::Query;
use purser_domain::AgentId;
use purser_store::ApprovalCursor;

/// The approvals that a page of the approval queue shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) agent: Option<AgentId>,
    /// The cursor in the list of pending approvals.
    pub(crate) older: Option<ApprovalCursor>,
    /// The cursor in the list of decided approvals.
    pub(crate) before: Option<ApprovalCursor>,
    /// Shows only a few pending approvals, for the overview.
    pub(crate) is_brief: bool,
}

impl View {
    /// Returns `None` if a parameter is invalid. An empty parameter counts as absent.
    pub(crate) fn from_uri(uri: &Uri) -> Option<Self> {
        let mut query = Query::from_uri(uri);
        let [agent, older, before] =
            ["agent_id", "older", "before"].map(|name| query.parse_text(name).filter(|text| !text.is_empty()));
        let cursor = |text: Option<String>| {
            text.map(|text| cursor::parse_approval_cursor(&text).ok_or(()))
                .transpose()
                .ok()
        };
        Some(Self {
            agent: agent.map(|text| AgentId::parse(&text).ok_or(())).transpose().ok()?,
            older: cursor(older)?,
            before: cursor(before)?,
            is_brief: query.parse_text("brief").is_some_and(|text| text == "true"),
        })
    }

    pub(crate) const fn max_approvals(self) -> u32 {
        if self.is_brief { 5 } else { 25 }
    }

    pub(crate) fn url(self, path: &str) -> String {
        let place = |place: Option<ApprovalCursor>| place.map(cursor::format_approval_cursor);
        path_with_query(
            path,
            [
                ("agent_id", self.agent.map(|agent| agent.to_string())),
                ("older", place(self.older)),
                ("before", place(self.before)),
                ("brief", self.is_brief.then(|| "true".to_owned())),
            ],
        )
    }

    pub(crate) fn queue_url(self) -> String {
        let view = Self {
            is_brief: false,
            ..self
        };
        view.url(paths::APPROVALS)
    }
}
