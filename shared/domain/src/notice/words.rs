//! The sentence that describes an event to a user, and the page to which it links. A link never performs an action.

use crate::{
    AgentId, Approval, AskingKind, AskingLimit, Event, EventKind, EventSubject, IncreasedCaps, OperationSlug, Rule,
    ServiceId, escape_hidden_characters,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The current names of agents, services and operations, and the reasons for approvals.
#[derive(Clone, Debug, Default)]
pub struct NotificationNames {
    /// The names of agents, as set by their owners.
    pub agents: BTreeMap<AgentId, String>,
    /// The names of services, as set by operators.
    pub services: BTreeMap<ServiceId, String>,
    /// The labels of the catalog's operations ([`crate::Operation::label`]).
    pub operations: BTreeMap<(ServiceId, OperationSlug), String>,
    /// The text of [`approval_reason`] by approval id.
    pub reasons: BTreeMap<String, String>,
}

/// Returns why a payment needs this approval, a sentence per limit. `rules` are the agent's rules.
pub fn approval_reason(approval: &Approval, rules: &[Rule]) -> String {
    if let Some(increase) = approval.temporary_caps() {
        let IncreasedCaps {
            max_per_call,
            max_per_day,
        } = increase.caps;
        let call = max_per_call.map(|max| format!("{} per call", max.to_dollars()));
        let day = max_per_day.map(|max| format!("{} per day", max.to_dollars()));
        let caps: Vec<String> = call.into_iter().chain(day).collect();
        let until = increase.until.to_display_text();
        return format!("A raise to {} until {until}.", caps.join(" and "));
    }
    let reasons = approval
        .asking
        .iter()
        .map(|limit| approval_reason_sentence_for_limit(limit, rules));
    reasons.collect::<Vec<String>>().join(" ")
}

fn approval_reason_sentence_for_limit(limit: &AskingLimit, rules: &[Rule]) -> String {
    if limit.rule.is_some_and(|id| !rules.iter().any(|rule| rule.id == id)) {
        return "An approval rule that was removed since.".to_owned();
    }
    format!("{}.", approval_reason_for_limit(limit))
}

/// Returns in a few words why a limit requires approval of a payment.
pub fn approval_reason_for_limit(limit: &AskingLimit) -> String {
    let above = limit.above.to_dollars();
    match limit.kind {
        AskingKind::Threshold => format!("Over the {above} approval threshold"),
        AskingKind::ApprovalRequired if limit.above.is_zero() => "Approval rule for every payment".to_owned(),
        AskingKind::ApprovalRequired => format!("Over the {above} of an approval rule"),
        AskingKind::DuplicateGuard => "The same call again".to_owned(),
        AskingKind::PriceAboveUsual => format!("Over the usual price, at most {above}"),
        AskingKind::NewPayee => "The first payment to this payee".to_owned(),
        AskingKind::BudgetLimit => format!("Over the {above} left of a budget"),
        AskingKind::CountLimit => "Over the number of payments of a rule".to_owned(),
    }
}

/// The sentence and the link that describe one event to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// A sentence about the event, in one line.
    pub sentence: String,
    /// The path of the page with more details.
    pub path: String,
}

const MAX_NAME_CHARS: usize = 60;

/// The Unicode word joiner, which has no width. A character between two joiners can't be part of a link, a command or
/// formatting.
const JOINER: char = '\u{2060}';

/// Makes an untrusted text one line of limited length without links, commands or formatting. Each channel must still
/// escape its own markup.
fn sanitized_line(text: &str) -> String {
    let message: Vec<&str> = text.split_whitespace().collect();
    let message = escape_hidden_characters(&message.join(" "));
    let mut text = String::with_capacity(message.len());
    for symbol in message.chars().take(MAX_NAME_CHARS) {
        match symbol {
            '.' | '。' | '．' | '｡' | '@' | '/' | '\\' | ':' | '`' | '*' | '~' | '|' | '_' | '#' => {
                text.extend([JOINER, symbol, JOINER]);
            }
            // Sentences enclose names in “ and ”, so these marks in a name become straight marks.
            '“' | '”' => text.push('"'),
            symbol => text.push(symbol),
        }
    }
    if message.chars().nth(MAX_NAME_CHARS).is_some() {
        text.push('…');
    }
    text
}

impl Notification {
    /// Creates the notification about an event.
    pub fn for_event(event: &Event, names: &NotificationNames) -> Self {
        let telling = NotificationText { event, names };
        Self {
            sentence: telling.event_sentence(),
            path: telling.page_path(),
        }
    }
}

struct NotificationText<'a> {
    event: &'a Event,
    names: &'a NotificationNames,
}

impl NotificationText<'_> {
    fn field_text(&self, field: &str) -> &str {
        self.event.data().find_text(field).unwrap_or_default()
    }

    fn agent_name(&self) -> String {
        let name = self.event.agent().and_then(|agent| self.names.agents.get(&agent));
        name.map_or_else(
            || "An agent of yours".to_owned(),
            |name| format!("“{}”", sanitized_line(name)),
        )
    }

    fn service_name(&self) -> String {
        let id = match self.event.subject() {
            EventSubject::Service(id) => Some(*id),
            _ => ServiceId::parse(self.field_text("service_id")),
        };
        let name = id
            .and_then(|id| self.names.services.get(&id))
            .map(|name| sanitized_line(name));
        let name = name.or_else(|| self.event.data().find_text("slug").map(sanitized_line));
        name.map_or_else(|| "a service".to_owned(), |name| format!("“{name}”"))
    }

    /// Returns the operation's label, or the operation's slug if the operation has no label. Returns `None` if the
    /// event has no operation.
    fn operation_label(&self) -> Option<String> {
        let slug = self.field_text("operation_id");
        let service = match self.event.subject() {
            EventSubject::Service(id) => Some(*id),
            _ => ServiceId::parse(self.field_text("service_id")),
        };
        let place = service.zip(OperationSlug::parse(slug));
        let label = place.and_then(|place| self.names.operations.get(&place));
        let label = label.map_or(slug, String::as_str);
        (!label.is_empty()).then(|| format!("“{}”", sanitized_line(label)))
    }

    fn operation_and_service(&self) -> String {
        let operation = self.operation_label().unwrap_or_else(|| "An operation".to_owned());
        format!("{operation} of {}", self.service_name())
    }

    fn approval_reason_sentence(&self) -> String {
        let reason = self.names.reasons.get(self.field_text("approval_id"));
        reason.map_or_else(String::new, |reason| format!(" {reason}"))
    }

    fn amount_text(&self, field: &str) -> String {
        let amount = self.event.data().find_amount(field);
        amount.map_or_else(|| "an amount".to_owned(), crate::Amount::to_dollars)
    }

    fn short_address(&self, field: &str) -> String {
        let text = self.field_text(field);
        match (text.get(..6), text.get(text.len().saturating_sub(4)..)) {
            (Some(start), Some(end)) if text.len() > 12 => format!("{start}…{end}"),
            _ => "an address".to_owned(),
        }
    }

    fn time_text(&self, field: &str) -> String {
        let at = self.event.data().find_time(field);
        at.map_or_else(|| "later".to_owned(), crate::Timestamp::to_display_text)
    }

    fn is_about_limit_increase(&self) -> bool {
        self.event.data().find_time("raised_until").is_some()
    }

    fn payment_text(&self) -> String {
        let operation = self
            .operation_label()
            .map_or_else(String::new, |operation| format!(" for {operation}"));
        format!(
            "{} to {}{operation} (payee {})",
            self.amount_text("amount_units"),
            self.service_name(),
            self.short_address("pay_to")
        )
    }

    fn withdrawal_text(&self) -> String {
        format!(
            "{} to {}",
            self.amount_text("amount_units"),
            self.short_address("pay_to")
        )
    }

    fn freeze_actor_text(&self) -> &'static str {
        if self.field_text("by") == "operator" {
            "by an operator"
        } else {
            "by its owner"
        }
    }

    fn event_sentence(&self) -> String {
        let agent = self.agent_name();
        match self.event.kind() {
            EventKind::ApprovalAsked => {
                let until = self.time_text("expires_at");
                if self.is_about_limit_increase() {
                    return format!(
                        "{agent} asks for higher limits at {}, where a payment was refused.{} Decide by {until}.",
                        self.service_name(),
                        self.approval_reason_sentence()
                    );
                }
                format!(
                    "{agent} asked for approval to pay {}.{} Decide by {until}.",
                    self.payment_text(),
                    self.approval_reason_sentence()
                )
            }
            EventKind::ApprovalDecided | EventKind::ApprovalWithdrawn | EventKind::ApprovalExpired
                if self.is_about_limit_increase() =>
            {
                let service = self.service_name();
                match self.event.kind() {
                    EventKind::ApprovalDecided => {
                        format!(
                            "{agent}: the request for higher limits at {service} was {}.",
                            self.approval_decision_text()
                        )
                    }
                    EventKind::ApprovalWithdrawn => format!("{agent}: the higher limits at {service} were ended."),
                    _ => format!("{agent}: the request for higher limits at {service} has expired."),
                }
            }
            EventKind::ApprovalDecided => {
                format!(
                    "{agent}: the payment of {} was {}.",
                    self.payment_text(),
                    self.approval_decision_text()
                )
            }
            EventKind::ApprovalWithdrawn => {
                format!("{agent}: the approval to pay {} was withdrawn.", self.payment_text())
            }
            EventKind::ApprovalUsed => format!("{agent} used its approval to pay {}.", self.payment_text()),
            EventKind::ApprovalExpired => format!("{agent}: the approval to pay {} has expired.", self.payment_text()),
            EventKind::PaymentAuthorized => format!("{agent} was allowed to pay {}.", self.payment_text()),
            EventKind::PaymentConfirmed => format!("{agent} paid {}.", self.payment_text()),
            EventKind::PaymentReleased => {
                format!(
                    "{agent}: the payment of {} was released. It can no longer be made.",
                    self.payment_text()
                )
            }
            EventKind::PaymentTakenBack | EventKind::PayoutTakenBack => {
                format!(
                    "{agent}: the confirmation of {} was reverted, because its block is no longer part of the chain.",
                    self.withdrawal_text()
                )
            }
            EventKind::PaymentRefused => format!("{agent}: the payment of {} was blocked.", self.payment_text()),
            EventKind::PaymentEscalated => {
                format!("{agent} asked for approval: {}.", self.payment_text())
            }
            EventKind::PayoutAuthorized => format!("{agent} pays out {}.", self.withdrawal_text()),
            EventKind::PayoutConfirmed => format!("{agent} paid out {}.", self.withdrawal_text()),
            EventKind::PayoutReleased => {
                format!(
                    "{agent}: the payout of {} was released. It can no longer be made.",
                    self.withdrawal_text()
                )
            }
            EventKind::AgentCreated => format!("{agent} was created."),
            EventKind::AgentFrozen => match self.event.data().find_text("reason") {
                // The reason begins with the name of the automatic freeze.
                Some(reason) => format!("{agent} was frozen by its {reason}. It can’t pay."),
                None => format!("{agent} was frozen {}. It can’t pay.", self.freeze_actor_text()),
            },
            EventKind::AgentUnfrozen => format!("{agent}: the freeze {} has ended.", self.freeze_actor_text()),
            EventKind::AgentAccepted => format!("{agent} is yours now."),
            EventKind::AgentHandedOver => format!("{agent} is no longer yours: another person accepted it."),
            EventKind::KeyCreated => format!("{agent} has a new key."),
            EventKind::KeyEnded => format!("{agent}: a key was rotated or revoked."),
            EventKind::PolicyChanged => match self.event.data().find_text("reason") {
                Some(reason) => format!("{agent} can no longer pay {}, by its {reason}.", self.service_name()),
                None => format!("{agent}: the policy for {} was changed.", self.service_name()),
            },
            EventKind::RuleCreated => format!("{agent} has a new rule."),
            EventKind::RuleChanged => format!("{agent}: a rule was changed."),
            EventKind::RuleRemoved => format!("{agent}: a rule was removed."),
            EventKind::PayoutAddressNamed => {
                let (address, from) = (self.short_address("address"), self.time_text("good_from"));
                format!("{agent} has the payout address {address}, which can be used from {from} on.")
            }
            EventKind::PayoutAddressRemoved => {
                format!(
                    "{agent} no longer has the payout address {}.",
                    self.short_address("address")
                )
            }
            EventKind::WalletLow => {
                let (balance, below) = (self.amount_text("balance_units"), self.amount_text("below_units"));
                format!("{agent} has a low wallet balance: {balance}, less than {below}.")
            }
            EventKind::OwnerFrozen => "Operators froze all your agents. They can’t pay.".to_owned(),
            EventKind::OwnerUnfrozen => "The operators’ freeze of all your agents has ended.".to_owned(),
            EventKind::DeploymentFrozen => "Operators froze the deployment. No agent can pay.".to_owned(),
            EventKind::DeploymentUnfrozen => "The freeze of the deployment has ended.".to_owned(),
            EventKind::WebhookTest => "This is the test notice that you requested. Notices arrive here.".to_owned(),
            EventKind::WebhookFailing => self.failing_webhook_sentence(),
            EventKind::ServiceOpened
            | EventKind::ServiceClosed
            | EventKind::ServicePayeeChanged
            | EventKind::ServicePriceChanged
            | EventKind::ServiceChangeDelayed
            | EventKind::ServiceChangeWithdrawn => self.service_sentence(),
        }
    }

    fn failing_webhook_sentence(&self) -> String {
        let data = self.event.data();
        let count = data.find("failed_calls").and_then(Value::as_u64).unwrap_or_default();
        let (since, last) = (self.time_text("failing_since"), self.field_text("last_result"));
        let end = match data.find("disabled").and_then(Value::as_bool) {
            Some(true) => " It receives no events until you switch it on.",
            _ => "",
        };
        format!("A webhook of yours has failed since {since} (calls: {count}, last result: {last}).{end}")
    }

    fn approval_decision_text(&self) -> &'static str {
        if self.field_text("status") == "approved" {
            "approved"
        } else {
            "rejected"
        }
    }

    fn service_sentence(&self) -> String {
        let (service, operation) = (self.service_name(), self.operation_and_service());
        match self.event.kind() {
            EventKind::ServiceOpened => format!("{service} can be enabled."),
            EventKind::ServiceClosed => format!("{service} can’t be enabled any more."),
            EventKind::ServicePayeeChanged => {
                format!("{operation} is paid to {} from now on.", self.short_address("pay_to"))
            }
            EventKind::ServicePriceChanged => {
                format!(
                    "{operation} may cost {} from now on.",
                    self.amount_text("max_price_units")
                )
            }
            EventKind::ServiceChangeDelayed => {
                let (payee, from) = (self.short_address("pay_to"), self.time_text("from"));
                let price = self.amount_text("max_price_units");
                format!("From {from}, {operation} will be paid to {payee}, at most {price}.")
            }
            _ => format!("The pending change of {operation} was withdrawn."),
        }
    }

    fn page_path(&self) -> String {
        match self.event.kind() {
            EventKind::WebhookTest => return "/dashboard/notices".to_owned(),
            EventKind::WebhookFailing => return format!("/dashboard/webhooks/{}", self.field_text("webhook_id")),
            EventKind::PaymentRefused => return "/dashboard/decisions".to_owned(),
            EventKind::AgentHandedOver => return "/dashboard".to_owned(),
            _ => {}
        }
        let Some(agent) = self.event.agent() else {
            return match self.event.subject() {
                EventSubject::Service(_) => "/dashboard/catalog".to_owned(),
                _ => "/dashboard".to_owned(),
            };
        };
        let is_payout = matches!(
            self.event.kind(),
            EventKind::PayoutAuthorized
                | EventKind::PayoutConfirmed
                | EventKind::PayoutReleased
                | EventKind::PayoutTakenBack
        );
        if is_payout {
            return format!("/dashboard/agents/{agent}");
        }
        let (approval, settlement) = (self.field_text("approval_id"), self.field_text("settlement_id"));
        if !settlement.is_empty() {
            format!("/dashboard/receipts/{agent}/{settlement}")
        } else if !approval.is_empty() {
            format!("/dashboard/approvals/{agent}/{approval}")
        } else {
            format!("/dashboard/agents/{agent}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::pending::tests::of_approval;
    use crate::{EventData, EventId, EventSource, EventTopic, Form, Timestamp, UserId};
    use uuid::Uuid;

    fn names(agent: &str) -> NotificationNames {
        NotificationNames {
            agents: [(AgentId::from_uuid(Uuid::from_u128(1)), agent.to_owned())].into(),
            services: [(ServiceId::from_uuid(Uuid::from_u128(7)), "Weather".to_owned())].into(),
            operations: [(
                (
                    ServiceId::from_uuid(Uuid::from_u128(7)),
                    OperationSlug::parse("weather.current").unwrap(),
                ),
                "Current weather".to_owned(),
            )]
            .into(),
            reasons: [(
                Uuid::from_u128(5).to_string(),
                "Over the $10.00 approval threshold.".to_owned(),
            )]
            .into(),
        }
    }

    #[test]
    fn approval_notifications_describe_and_link_the_request() {
        let asked = of_approval(EventKind::ApprovalAsked, 5, |data| data);
        let notice = Notification::for_event(&asked, &names("Researcher"));
        assert_eq!(
            notice.sentence,
            "“Researcher” asked for approval to pay $12.50 to “Weather” for “Current weather” (payee 0x3C44…93BC). \
             Over the $10.00 approval threshold. Decide by 1 Jan 1970, 01:23 UTC."
        );
        let (agent, approval) = (Uuid::from_u128(1), Uuid::from_u128(5));
        assert_eq!(notice.path, format!("/dashboard/approvals/{agent}/{approval}"));
        let unknown = Notification::for_event(&asked, &NotificationNames::default()).sentence;
        assert!(
            unknown.starts_with(
                "An agent of yours asked for approval to pay $12.50 to a service for “weather\u{2060}.\u{2060}current”"
            ),
            "{unknown}"
        );
    }

    /// In the rows, `+` stands for a joiner.
    #[test]
    fn untrusted_text_in_notifications_becomes_one_plain_line() {
        let rows = [
            ("Researcher 2", "Researcher 2"),
            ("https://evil.example", "https+:++/++/+evil+.+example"),
            ("me@evil.example", "me+@+evil+.+example"),
            ("a\r\nApprove: x", "a Approve+:+ x"),
            ("<!channel> <a href=\"x\">", "<!channel> <a href=\"x\">"),
            ("\u{202e}txt.exe\u{200b}", "+\\+u{202e}txt+.+exe+\\+u{200b}"),
            ("” *here* _and_ `there`", "\" +*+here+*+ +_+and+_+ +`+there+`+"),
            ("Käse & Brot", "Käse & Brot"),
        ];
        for (text, expected) in rows {
            let told = sanitized_line(text);
            assert_eq!(told.replace(JOINER, "+"), expected, "{text}");
            let shown: String = told.chars().filter(|symbol| *symbol != JOINER).collect();
            let seen = escape_hidden_characters(&text.replace(['\r', '\n'], " ")).replace('”', "\"");
            assert_eq!(
                shown,
                seen.split_whitespace().collect::<Vec<_>>().join(" "),
                "no character is lost"
            );
        }
        assert_eq!(sanitized_line(&".".repeat(100)).matches('.').count(), 60);
        assert_eq!(sanitized_line(&"ä".repeat(100)), format!("{}…", "ä".repeat(60)));
    }

    #[test]
    fn an_approval_notification_names_each_limit_that_requires_approval() {
        let units = |units| crate::Amount::from_units(units).unwrap();
        let id = crate::RuleId::from_uuid(Uuid::from_u128(3));
        let rule = Rule {
            id,
            version: 1,
            kind: crate::RuleKind::ApprovalRequired(crate::ApprovalRequired {
                services: None,
                categories: None,
                above: None,
            }),
        };
        let limit = |rule, kind, above| AskingLimit {
            rule,
            above: units(above),
            kind,
        };
        let threshold = limit(None, AskingKind::Threshold, 5_000_000);
        let asking = |above| limit(Some(id), AskingKind::ApprovalRequired, above);
        let payee = limit(Some(id), AskingKind::NewPayee, 0);
        let rules = std::slice::from_ref(&rule);
        for (asking, rules, expected) in [
            (vec![threshold], rules, "Over the $5.00 approval threshold."),
            (vec![asking(2_000_000)], rules, "Over the $2.00 of an approval rule."),
            (vec![asking(0)], rules, "Approval rule for every payment."),
            (vec![asking(0)], &[], "An approval rule that was removed since."),
            (
                vec![threshold, payee],
                rules,
                "Over the $5.00 approval threshold. The first payment to this payee.",
            ),
        ] {
            let approval = Approval {
                asking,
                ..crate::policy::approval::tests::approval()
            };
            assert_eq!(approval_reason(&approval, rules), expected);
        }
    }

    fn labels() -> crate::Labels {
        crate::Labels::parse(&serde_json::json!({"team": "search"}), "").unwrap()
    }

    fn sample(kind: EventKind) -> Event {
        let mut data = EventData::new();
        for field in kind.fields() {
            data = match field.form {
                Form::Uuid => data.text(field.name, Uuid::from_u128(7)),
                Form::Number => data.number(field.name, 7),
                Form::Time => data.time(field.name, Timestamp::EPOCH),
                Form::Address => data.text(field.name, "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
                Form::Hash => data.text(field.name, format!("0x{}", "ab".repeat(32))),
                Form::Flag => data.flag(field.name, true),
                Form::Labels => data.labels(&labels()),
                Form::OneOf(texts) => data.text(field.name, texts[0]),
                Form::Text => data.text(field.name, "x"),
            };
        }
        let owner = UserId::derive("https://issuer.example", "ann");
        let subject = match kind.topic() {
            EventTopic::Agent => EventSubject::Agent(AgentId::from_uuid(Uuid::from_u128(1))),
            EventTopic::Service => EventSubject::Service(ServiceId::from_uuid(Uuid::from_u128(7))),
            EventTopic::Person => EventSubject::Person(owner.clone()),
            EventTopic::Deployment => EventSubject::Deployment,
        };
        let owner = kind.topic().has_owner().then_some(owner);
        let source = EventSource::for_stack("stack").unwrap();
        Event::new(
            EventId::derive(kind, &[]),
            source,
            kind,
            Timestamp::EPOCH,
            subject,
            owner,
            data,
        )
        .unwrap()
    }

    #[test]
    fn automatic_freeze_notifications_state_the_reason() {
        let notice = Notification::for_event(&sample(EventKind::AgentFrozen), &names("Researcher"));
        assert_eq!(notice.sentence, "“Researcher” was frozen by its x. It can’t pay.");
        let notice = Notification::for_event(&sample(EventKind::PolicyChanged), &names("Researcher"));
        assert_eq!(notice.sentence, "“Researcher” can no longer pay “Weather”, by its x.");
    }

    #[test]
    fn every_event_kind_has_a_notification_sentence_and_page() {
        for kind in EventKind::ALL.iter().copied() {
            let event = sample(kind);
            let notice = Notification::for_event(&event, &names("Researcher"));
            let is_page = notice.path == "/dashboard" || notice.path.starts_with("/dashboard/");
            assert!(is_page && notice.sentence.ends_with('.'), "{}: {notice:?}", kind.name());
        }
    }
}
