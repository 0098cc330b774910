//! One event as a sentence for a person, and the page that it links to. A link never performs an action.

use crate::{AgentId, Event, EventKind, EventSubject, ServiceId};
use std::collections::BTreeMap;

/// The current names of agents and services.
#[derive(Clone, Debug, Default)]
pub struct NoticeNames {
    /// The names of agents, as set by their owners.
    pub agents: BTreeMap<AgentId, String>,
    /// The names of services, as set by operators.
    pub services: BTreeMap<ServiceId, String>,
}

/// One event as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The event in one line.
    pub sentence: String,
    /// The path of the page with more details.
    pub path: String,
}

/// The maximum length of a name in a notice, in characters.
const LONGEST_NAME: usize = 60;

/// An untrusted text as part of a notice: one line, of limited length, and without the characters that mail programs
/// and chats turn into links, commands or another writing direction. Markup is kept, because each channel escapes it.
fn plain(text: &str) -> String {
    let kept = text.chars().map(|symbol| match symbol {
        '.' => '·',
        '@' | '/' | '\\' | ':' | '`' | '*' | '~' | '|' | '“' | '”' => ' ',
        symbol if symbol.is_control() || is_unseen(symbol) => ' ',
        symbol => symbol,
    });
    let words: String = kept.collect();
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut text = words.join(" ");
    if let Some((end, _)) = text.char_indices().nth(LONGEST_NAME) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Whether a character is invisible and changes how other characters are displayed, such as their direction or width
/// (Unicode, `Cf`).
const fn is_unseen(symbol: char) -> bool {
    matches!(
        symbol,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

impl Notice {
    /// The sentence and the page for an event.
    pub fn of(event: &Event, names: &NoticeNames) -> Self {
        let telling = NoticeText { event, names };
        Self {
            sentence: telling.sentence(),
            path: telling.path(),
        }
    }
}

struct NoticeText<'a> {
    event: &'a Event,
    names: &'a NoticeNames,
}

impl NoticeText<'_> {
    fn text(&self, member: &str) -> &str {
        self.event.data().get_text(member).unwrap_or_default()
    }

    fn agent(&self) -> String {
        let name = self.event.agent().and_then(|agent| self.names.agents.get(&agent));
        name.map_or_else(|| "An agent of yours".to_owned(), |name| format!("“{}”", plain(name)))
    }

    fn service(&self) -> String {
        let id = match self.event.subject() {
            EventSubject::Service(id) => Some(*id),
            _ => ServiceId::parse(self.text("service_id")),
        };
        let name = id.and_then(|id| self.names.services.get(&id)).map(|name| plain(name));
        let name = name.or_else(|| self.event.data().get_text("slug").map(plain));
        name.map_or_else(|| "a service".to_owned(), |name| format!("“{name}”"))
    }

    fn amount(&self, member: &str) -> String {
        let amount = self.event.data().get_amount(member);
        amount.map_or_else(|| "an amount".to_owned(), crate::Amount::to_dollars)
    }

    /// A shortened address, in the same form as on the pages.
    fn short(&self, member: &str) -> String {
        let text = self.text(member);
        match (text.get(..6), text.get(text.len().saturating_sub(4)..)) {
            (Some(start), Some(end)) if text.len() > 12 => format!("{start}…{end}"),
            _ => "an address".to_owned(),
        }
    }

    /// A time to the minute, in the same form as on the pages.
    fn time(&self, member: &str) -> String {
        let at = self.event.data().get_time(member);
        at.map_or_else(|| "later".to_owned(), crate::Timestamp::for_people)
    }

    fn payment(&self) -> String {
        format!(
            "{} to {} ({})",
            self.amount("amount_units"),
            self.service(),
            self.short("pay_to")
        )
    }

    fn payout(&self) -> String {
        format!("{} to {}", self.amount("amount_units"), self.short("pay_to"))
    }

    fn by(&self) -> &'static str {
        if self.text("by") == "operator" {
            "by an operator"
        } else {
            "by its owner"
        }
    }

    fn sentence(&self) -> String {
        let agent = self.agent();
        match self.event.kind() {
            EventKind::ApprovalAsked => {
                let until = self.time("expires_at");
                format!(
                    "{agent} requests approval to pay {}. Decide by {until}.",
                    self.payment()
                )
            }
            EventKind::ApprovalDecided => {
                format!("{agent}: the payment of {} was {}.", self.payment(), self.verdict())
            }
            EventKind::ApprovalUsed => format!("{agent} used its approval to pay {}.", self.payment()),
            EventKind::ApprovalExpired => format!("{agent}: the approval to pay {} has expired.", self.payment()),
            EventKind::PaymentAuthorized => format!("{agent} was allowed to pay {}.", self.payment()),
            EventKind::PaymentConfirmed => format!("{agent} paid {}.", self.payment()),
            EventKind::PaymentReleased => {
                format!("{agent}: the payment of {} expired and was not made.", self.payment())
            }
            EventKind::PaymentTakenBack | EventKind::PayoutTakenBack => {
                format!(
                    "{agent}: the payment of {} is no longer confirmed, because its block is no longer part of the chain.",
                    self.payout()
                )
            }
            EventKind::PaymentRefused => format!("{agent}: the payment of {} was refused.", self.payment()),
            EventKind::PaymentEscalated => {
                format!("{agent}: the payment of {} needs your approval.", self.payment())
            }
            EventKind::PayoutAuthorized => format!("{agent} pays out {}.", self.payout()),
            EventKind::PayoutConfirmed => format!("{agent} paid out {}.", self.payout()),
            EventKind::PayoutReleased => format!("{agent}: the payout of {} expired and was not made.", self.payout()),
            EventKind::AgentCreated => format!("{agent} was created."),
            EventKind::AgentFrozen => format!("{agent} was frozen {}. It can’t pay.", self.by()),
            EventKind::AgentUnfrozen => format!("{agent}: the freeze {} has ended.", self.by()),
            EventKind::AgentAccepted => format!("{agent} is yours now."),
            EventKind::AgentHandedOver => format!("{agent} is no longer yours: another person accepted it."),
            EventKind::KeyCreated => format!("{agent} has a new key."),
            EventKind::KeyEnded => format!("{agent}: a key was rotated or revoked."),
            EventKind::PolicyChanged => format!("{agent}: the policy for {} was changed.", self.service()),
            EventKind::RuleCreated => format!("{agent} has a new rule."),
            EventKind::RuleChanged => format!("{agent}: a rule was changed."),
            EventKind::RuleRemoved => format!("{agent}: a rule was removed."),
            EventKind::PayoutAddressNamed => {
                let (address, from) = (self.short("address"), self.time("good_from"));
                format!("{agent} has the payout address {address}, which can be used from {from} on.")
            }
            EventKind::PayoutAddressRemoved => {
                format!("{agent} no longer has the payout address {}.", self.short("address"))
            }
            EventKind::WalletLow => {
                let (balance, below) = (self.amount("balance_units"), self.amount("below_units"));
                format!("{agent} has a low wallet balance: {balance}, less than {below}.")
            }
            EventKind::OwnerFrozen => "Operators froze all your agents. They can’t pay.".to_owned(),
            EventKind::OwnerUnfrozen => "The operators’ freeze of all your agents has ended.".to_owned(),
            EventKind::DeploymentFrozen => "Operators froze the deployment. No agent can pay.".to_owned(),
            EventKind::DeploymentUnfrozen => "The freeze of the deployment has ended.".to_owned(),
            EventKind::WebhookTest => "This is the test notice that you requested. Notices arrive here.".to_owned(),
            EventKind::ServiceOpened
            | EventKind::ServiceClosed
            | EventKind::ServicePayeeChanged
            | EventKind::ServicePriceChanged
            | EventKind::ServiceChangeDelayed
            | EventKind::ServiceChangeWithdrawn => self.of_service(),
        }
    }

    fn verdict(&self) -> &'static str {
        if self.text("status") == "approved" {
            "approved"
        } else {
            "rejected"
        }
    }

    fn of_service(&self) -> String {
        let (service, operation) = (self.service(), plain(self.text("operation_id")));
        match self.event.kind() {
            EventKind::ServiceOpened => format!("{service} can be enabled."),
            EventKind::ServiceClosed => format!("{service} can’t be enabled any more."),
            EventKind::ServicePayeeChanged => {
                format!(
                    "“{operation}” of {service} is paid to {} from now on.",
                    self.short("pay_to")
                )
            }
            EventKind::ServicePriceChanged => {
                format!(
                    "“{operation}” of {service} may cost {} from now on.",
                    self.amount("max_price_units")
                )
            }
            EventKind::ServiceChangeDelayed => {
                let (payee, from) = (self.short("pay_to"), self.time("from"));
                let price = self.amount("max_price_units");
                format!("From {from}, “{operation}” of {service} will be paid to {payee}, at most {price}.")
            }
            _ => format!("The pending change of “{operation}” of {service} was withdrawn."),
        }
    }

    fn path(&self) -> String {
        match self.event.kind() {
            EventKind::WebhookTest => return "/dashboard/notices".to_owned(),
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
        let (approval, settlement) = (self.text("approval_id"), self.text("settlement_id"));
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
    use crate::{EventData, EventId, EventSource, EventTopic, Form, PersonId, Timestamp};
    use uuid::Uuid;

    fn names(agent: &str) -> NoticeNames {
        NoticeNames {
            agents: [(AgentId::from_uuid(Uuid::from_u128(1)), agent.to_owned())].into(),
            services: [(ServiceId::from_uuid(Uuid::from_u128(7)), "Weather".to_owned())].into(),
        }
    }

    #[test]
    fn approval_notices_describe_the_request_and_link_it() {
        let asked = of_approval(EventKind::ApprovalAsked, 5, |data| data);
        let notice = Notice::of(&asked, &names("Researcher"));
        assert_eq!(
            notice.sentence,
            "“Researcher” requests approval to pay $12.50 to “Weather” (0x3C44…93BC). Decide by 1 Jan 1970, 01:23 UTC."
        );
        let (agent, approval) = (Uuid::from_u128(1), Uuid::from_u128(5));
        assert_eq!(notice.path, format!("/dashboard/approvals/{agent}/{approval}"));
        let unknown = Notice::of(&asked, &NoticeNames::default()).sentence;
        assert!(
            unknown.starts_with("An agent of yours requests approval to pay $12.50 to a service"),
            "{unknown}"
        );
    }

    /// The text has at most 60 characters, and no links, commands or hidden characters.
    #[test]
    fn untrusted_text_becomes_one_plain_line() {
        let rows = [
            ("Researcher 2", "Researcher 2"),
            ("https://evil.example/login", "https evil·example login"),
            ("mail me@evil.example", "mail me evil·example"),
            ("a\r\nApprove: https://x", "a Approve https x"),
            ("<!channel> <a href=\"x\">", "<!channel> <a href=\"x\">"),
            ("\u{202e}txt.exe\u{200b}", "txt·exe"),
            ("”. Click *here*", "· Click here"),
            ("Käse & Brot", "Käse & Brot"),
        ];
        for (text, expected) in rows {
            assert_eq!(plain(text), expected, "{text}");
        }
        assert_eq!(plain(&"ä".repeat(100)), format!("{}…", "ä".repeat(60)));
    }

    /// An event of this kind, with all its members.
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
                Form::OneOf(texts) => data.text(field.name, texts[0]),
                Form::Text => data.text(field.name, "x"),
            };
        }
        let owner = PersonId::of("https://issuer.example", "ann");
        let subject = match kind.topic() {
            EventTopic::Agent => EventSubject::Agent(AgentId::from_uuid(Uuid::from_u128(1))),
            EventTopic::Service => EventSubject::Service(ServiceId::from_uuid(Uuid::from_u128(7))),
            EventTopic::Person => EventSubject::Person(owner.clone()),
            EventTopic::Deployment => EventSubject::Deployment,
        };
        let owner = kind.topic().has_owner().then_some(owner);
        let source = EventSource::of("stack").unwrap();
        Event::new(
            EventId::of(kind, &[]),
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
    fn every_event_kind_has_a_sentence_and_page() {
        for kind in EventKind::ALL.iter().copied() {
            let event = sample(kind);
            let notice = Notice::of(&event, &names("Researcher"));
            let is_page = notice.path == "/dashboard" || notice.path.starts_with("/dashboard/");
            assert!(is_page && notice.sentence.ends_with('.'), "{}: {notice:?}", kind.name());
        }
    }
}
