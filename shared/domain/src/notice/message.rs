//! A message to a user with a sentence about each pending event.

use crate::{Event, EventKind, Notification, NotificationNames, notice::pending::NotificationRank};
use serde_json::json;
use std::fmt::Write as _;

/// The maximum number of events with a sentence. Further events are only counted.
const MAX_LISTED: usize = 20;

/// The path of the page with the notification settings.
const SETTINGS: &str = "/dashboard/notices";

/// A message to a user about pending events, as mail or for Slack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationMessage {
    /// The subject of the mail. For a single event, the subject is the event's sentence.
    pub subject: String,
    notices: Vec<Notification>,
    /// The number of events without a sentence.
    more: usize,
}

/// Sorts a message's events: approval requests first, then the default kinds, then other kinds, each by time.
pub fn sort_by_urgency(events: &mut [Event]) {
    events.sort_by_key(|event| (NotificationRank::for_event(event), event.time(), event.id()));
}

/// Returns the events that the message describes. The caller needs [`NotificationNames`] only for these events.
pub fn listed_events(events: &[Event]) -> &[Event] {
    events.get(..MAX_LISTED).unwrap_or(events)
}

impl NotificationMessage {
    /// Creates the message about events that are sorted by [`sort_by_urgency`]. Returns `None` without events.
    pub fn for_events(events: &[Event], names: &NotificationNames) -> Option<Self> {
        let result = listed_events(events);
        let notices: Vec<Notification> = result
            .iter()
            .map(|event| Notification::for_event(event, names))
            .collect();
        let first = notices.first()?;
        let request = events
            .iter()
            .filter(|event| event.kind() == EventKind::ApprovalAsked)
            .count();
        let subject = match (events.len(), request) {
            (1, _) => first.sentence.clone(),
            (count, 0) => format!("{count} notices"),
            (count, 1) => format!("1 payment waits for your approval ({count} notices)"),
            (count, request) if count == request => format!("{request} payments wait for your approval"),
            (count, request) => format!("{request} payments wait for your approval ({count} notices)"),
        };
        Some(Self {
            subject,
            more: events.len().saturating_sub(result.len()),
            notices,
        })
    }

    fn further_events_sentence(&self) -> Option<String> {
        (self.more > 0).then(|| format!("And {} more.", self.more))
    }

    /// Returns the message as plain text for a mail. Links start with `origin`.
    pub fn to_text(&self, origin: &str) -> String {
        let mut text = String::new();
        for notice in &self.notices {
            let _infallible = write!(text, "{}\r\n{origin}{}\r\n\r\n", notice.sentence, notice.path);
        }
        if let Some(rest) = self.further_events_sentence() {
            let _infallible = write!(text, "{rest}\r\n{origin}/dashboard\r\n\r\n");
        }
        let _infallible = write!(
            text,
            "-- \r\nThe links only open pages. To decide, sign in there.\r\n\
             Choose your notices: {origin}{SETTINGS}\r\n"
        );
        text
    }

    /// Returns the message as HTML for a mail, without images, styles or scripts.
    pub fn to_html(&self, origin: &str) -> String {
        let mut html = String::from("<!DOCTYPE html><html lang=\"en\"><body>");
        let mut paragraph = |sentence: &str, path: &str| {
            let (sentence, link) = (escape_for_html(sentence), escape_for_html(&format!("{origin}{path}")));
            let _infallible = write!(html, "<p>{sentence}<br><a href=\"{link}\">{link}</a></p>");
        };
        for notice in &self.notices {
            paragraph(&notice.sentence, &notice.path);
        }
        if let Some(rest) = self.further_events_sentence() {
            paragraph(&rest, "/dashboard");
        }
        html.push_str("<hr>");
        let settings = escape_for_html(&format!("{origin}{SETTINGS}"));
        let _infallible = write!(
            html,
            "<p>The links only open pages. To decide, sign in there. \
             <a href=\"{settings}\">Choose your notices</a></p></body></html>"
        );
        html
    }

    /// Returns the body of a request to a Slack incoming webhook (Slack, "Formatting text for app surfaces").
    pub fn to_slack_body(&self, origin: &str) -> String {
        let mut text = String::new();
        for notice in &self.notices {
            let link = escape_for_slack(&format!("{origin}{}", notice.path));
            let _infallible = writeln!(text, "• {} <{link}>", escape_for_slack(&notice.sentence));
        }
        if let Some(rest) = self.further_events_sentence() {
            let _infallible = writeln!(text, "{rest} <{}/dashboard>", escape_for_slack(origin));
        }
        json!({"text": text.trim_end(), "unfurl_links": false, "unfurl_media": false}).to_string()
    }

    /// Returns the URL of the page with the notification settings.
    pub fn settings_url(origin: &str) -> String {
        format!("{origin}{SETTINGS}")
    }
}

fn escape_for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn escape_for_html(text: &str) -> String {
    escape_for_slack(text).replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentId, notice::pending::tests::of_approval};
    use uuid::Uuid;

    const ORIGIN: &str = "https://purser.example";

    fn message(count: u128) -> NotificationMessage {
        let asked = (1..=count).map(|n| of_approval(EventKind::ApprovalAsked, n, |data| data));
        let mut events: Vec<Event> = asked.collect();
        sort_by_urgency(&mut events);
        let names = NotificationNames {
            agents: [(AgentId::from_uuid(Uuid::from_u128(1)), "A & <b>'s".to_owned())].into(),
            ..NotificationNames::default()
        };
        NotificationMessage::for_events(&events, &names).unwrap()
    }

    #[test]
    fn many_events_are_combined_into_a_message_of_limited_length() {
        let one = message(1);
        assert!(
            one.subject.starts_with("“A & <b>'s” asked for approval to pay $12.50"),
            "{}",
            one.subject
        );
        let many = message(50);
        assert_eq!(many.subject, "50 payments wait for your approval");
        for text in [many.to_text(ORIGIN), many.to_html(ORIGIN), many.to_slack_body(ORIGIN)] {
            assert_eq!(text.matches("asked for approval to pay").count(), 20);
            assert!(text.contains("And 30 more.") && text.len() < 14_000, "{}", text.len());
        }
        assert!(NotificationMessage::for_events(&[], &NotificationNames::default()).is_none());
    }

    #[test]
    fn approval_requests_come_first_in_a_message() {
        let used = of_approval(EventKind::ApprovalUsed, 1, |data| {
            data.text("settlement_id", Uuid::nil())
        });
        let asked = of_approval(EventKind::ApprovalAsked, 2, |data| data);
        let mut events = [used, asked];
        sort_by_urgency(&mut events);
        assert_eq!(events[0].kind(), EventKind::ApprovalAsked);
        let message = NotificationMessage::for_events(&events, &NotificationNames::default()).unwrap();
        assert_eq!(message.subject, "1 payment waits for your approval (2 notices)");
    }

    #[test]
    fn notifications_are_escaped_and_link_only_to_purser() {
        let message = message(2);
        let (html, slack, text) = (
            message.to_html(ORIGIN),
            message.to_slack_body(ORIGIN),
            message.to_text(ORIGIN),
        );
        assert!(html.contains("“A &amp; &lt;b&gt;&#39;s”") && !html.contains("<img") && !html.contains("<b>"));
        let slack: serde_json::Value = serde_json::from_str(&slack).unwrap();
        let slack = slack["text"].as_str().unwrap().to_owned();
        assert!(slack.contains("“A &amp; &lt;b&gt;'s”"), "{slack}");
        for form in [html, slack, text] {
            let ours = form.matches(ORIGIN).count();
            assert_eq!(form.matches("://").count(), ours, "{form}");
            assert!(
                form.contains("/dashboard/approvals/") && !form.contains("/approve"),
                "{form}"
            );
        }
    }
}
