/// A way to try out an update without saving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// Show a preview above the form.
    Preview,
    /// Attach the limits to the agent as a shadow policy.
    Shadow,
    /// Start a backtest in the background.
    Backtest,
}

impl Trial {
    /// Returns the name in the query string.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Shadow => "shadow",
            Self::Backtest => "backtest",
        }
    }
}
