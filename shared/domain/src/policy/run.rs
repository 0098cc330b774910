//! Runs: an agent's key opens a key for a sub-agent's task, with a lifetime budget that counts only the new key's
//! payments.

use crate::{
    Agent, AgentKey, BudgetLimit, Duration, Error, ErrorKind, KeyId, KeyLack, KeyScope, Result, Rule, RuleKind,
    RuleWindow, Timestamp, ValidationError, WindowPeriod,
};

impl RuleWindow {
    /// Returns the window of a run's budget, which counts all payments with the run's key.
    pub fn for_run(key: KeyId) -> Self {
        Self {
            keys: Some(vec![key]),
            period: WindowPeriod::Lifetime,
            ..Self::from(Duration::DAY)
        }
    }
}

impl Agent {
    /// The maximum number of an agent's open runs. Each has a budget, and half of the budgets stay for the owner.
    pub const MAX_RUNS: usize = Self::MAX_BUDGETS / 2;
    /// The maximum duration of a run.
    pub const MAX_RUN_DURATION: Duration = Duration::from_secs_u32(7 * 86_400);

    /// Gives the key of a new run the scope of the key that opens the run, narrowed to the services and the expiry in
    /// the scope of `key`.
    ///
    /// A grant, a run's key and a key that a budget or count limit names can't open runs, because that limit would not
    /// count the run's payments.
    pub fn narrow_run_key(&self, key: AgentKey, now: Timestamp) -> Result<AgentKey> {
        let opener = key.opened_by.and_then(|id| self.find_key(id));
        let opener = opener
            .filter(|opener| !opener.has_ended(now))
            .ok_or(ErrorKind::InvalidAgentKey)?;
        let mut named = self
            .counting_rules()
            .filter_map(|counting| counting.rule.kind.scope().keys);
        let is_limited = opener.grant().is_some() || opener.opened_by.is_some();
        if is_limited || named.any(|keys| keys.contains(&opener.id)) {
            return Err(ErrorKind::from(KeyLack::Run).into());
        }
        let KeyScope {
            services, expires_at, ..
        } = key.scope;
        services
            .iter()
            .flatten()
            .try_for_each(|service| opener.scope.check_service(*service))?;
        let latest = opener
            .end_time()
            .into_iter()
            .fold(now.after(Self::MAX_RUN_DURATION), Timestamp::min);
        if expires_at.is_none_or(|at| latest < at) {
            let message = format!("must be at most {latest}: a run lasts at most 7 days, and not longer than your key");
            return Err(Error::invalid(vec![ValidationError::at_path("/expires_at", message)]));
        }
        let scope = KeyScope {
            services: services.or_else(|| opener.scope.services.clone()),
            expires_at,
            ..opener.scope.clone()
        };
        Ok(AgentKey { scope, ..key })
    }

    /// Returns whether a response to `key` may show the rule: the rule applies to the key, or to a run that the key
    /// opened.
    pub fn shows_rule_to_key(&self, rule: &RuleKind, key: KeyId) -> bool {
        let mut runs = self.keys.iter().filter(|run| run.opened_by == Some(key));
        rule.applies_to_key(key) || runs.any(|run| rule.applies_to_key(run.id))
    }

    /// Ends each open run without a lifetime budget that counts all payments with the run's key, and only those, so that
    /// an update of the rules does not leave the key without its limit.
    #[must_use]
    pub fn without_unlimited_runs(self, now: Timestamp) -> Self {
        let is_budget_of = |rule: &Rule, key: KeyId| {
            let budget: Option<&BudgetLimit> = rule.kind.as_kind();
            budget.is_some_and(|BudgetLimit { window, .. }| {
                *window
                    == RuleWindow {
                        action: window.action,
                        ..RuleWindow::for_run(key)
                    }
            })
        };
        let rules = &self.rules;
        let keys = self.keys.into_iter().map(|key| {
            let is_limited = key.opened_by.is_none() || rules.iter().any(|rule| is_budget_of(rule, key.id));
            if is_limited || key.has_ended(now) {
                key
            } else {
                key.with_earlier_end(now)
            }
        });
        let keys = keys.collect();
        Self { keys, ..self }
    }

    /// Removes the budgets that count only payments of ended grants and runs, because an agent may have only
    /// [`Agent::MAX_BUDGETS`].
    #[must_use]
    pub fn without_budgets_of_ended_keys(mut self, now: Timestamp) -> Self {
        let keys = &self.keys;
        let has_ended = |id: &KeyId| {
            let key = keys.iter().find(|key| key.id == *id);
            key.is_none_or(|key| (key.grant().is_some() || key.opened_by.is_some()) && key.has_ended(now))
        };
        let counts_only_ended_keys = |budget: &BudgetLimit| {
            budget
                .window
                .keys
                .as_ref()
                .is_some_and(|keys| keys.iter().all(has_ended))
        };
        self.rules
            .retain(|rule| !rule.kind.as_kind().is_some_and(counts_only_ended_keys));
        self
    }
}
