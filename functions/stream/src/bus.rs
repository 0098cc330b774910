//! Publishes events to the deployment's `EventBridge` bus.

use aws_sdk_eventbridge::{
    Client,
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
    primitives::DateTime,
    types::PutEventsRequestEntry,
};
use aws_types::SdkConfig;
use purser_domain::{Event, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Bus {
    client: Client,
    name: String,
}

/// How many events of a list were published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishResult {
    All,
    /// All events before this index were published, and possibly some later events.
    UpTo(usize),
}

/// The maximum number of entries per `PutEvents` call (API reference).
const MAX_ENTRIES: usize = 10;

impl Bus {
    pub(crate) fn new(aws: &SdkConfig, name: String) -> Self {
        let client = Client::new(aws);
        Self { client, name }
    }

    /// Publishes these events in order. Stops if the bus rejects an event.
    pub(crate) async fn publish(&self, events: &[Event]) -> PublishResult {
        let mut result = 0_usize;
        for events in events.chunks(MAX_ENTRIES) {
            let entries = events.iter().map(|event| self.put_events_entry(event)).collect();
            match self.client.put_events().set_entries(Some(entries)).send().await {
                Ok(response) => {
                    // The response has one result for each entry, in the same order (API reference,
                    // `PutEventsResultEntry`).
                    let refused = response.entries().iter().position(|entry| entry.event_id().is_none());
                    let missing = (response.entries().len() < events.len()).then_some(response.entries().len());
                    if let Some(first) = refused.or(missing) {
                        let code = response.entries().get(first).and_then(|entry| entry.error_code());
                        tracing::warn!(code, "events.refused");
                        return PublishResult::UpTo(result.saturating_add(first));
                    }
                }
                Err(error) => {
                    tracing::warn!(cause = sdk_error_text(&error), "events.untold");
                    return PublishResult::UpTo(result);
                }
            }
            result = result.saturating_add(events.len());
        }
        PublishResult::All
    }

    fn put_events_entry(&self, event: &Event) -> PutEventsRequestEntry {
        PutEventsRequestEntry::builder()
            .event_bus_name(&self.name)
            .source(event.source().as_str())
            .detail_type(event.kind().name())
            .time(to_whole_seconds(event.time()))
            .detail(event.to_json().to_string())
            .build()
    }
}

/// Converts a time to whole seconds, as `PutEvents` requires. The event's body has the exact time.
fn to_whole_seconds(at: Timestamp) -> DateTime {
    DateTime::from_secs(i64::try_from(at.secs()).unwrap_or(i64::MAX))
}

/// Returns the error's code, or why there was no response. The text never contains the request.
fn sdk_error_text<E>(error: &SdkError<E>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error.as_service_error() {
        Some(response) => response.code().unwrap_or("unknown").to_owned(),
        None => DisplayErrorContext(error).to_string(),
    }
}
