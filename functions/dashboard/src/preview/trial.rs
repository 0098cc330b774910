purser_domain::named! {
    /// A way to try out an update without saving it.
    Trial {
        /// Shows a preview above the form.
        Preview = "preview",
        /// Attaches the limits to the agent as a shadow policy.
        Shadow = "shadow",
        /// Starts a backtest in the background.
        Backtest = "backtest",
    }
}
