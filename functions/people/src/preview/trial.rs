//! The ways to try an edit instead of saving it.

/// A way to try an edit instead of saving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// A preview above the form.
    Preview,
    /// The shadow of the agent.
    Shadow,
    /// A backtest in the background.
    Backtest,
}

impl Trial {
    /// The name in the query.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Shadow => "shadow",
            Self::Backtest => "backtest",
        }
    }
}
