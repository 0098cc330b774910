//! The section with a webhook's deliveries, one table row per event.

use crate::cursor;
use crate::ui::datetime::{exact_time, relative_time};
use crate::ui::layout::{Button, Layout};
use crate::ui::list::{Column, column_headings, first_and_next_links};
use axum::http::Uri;
use maud::{Markup, html};
use purser_api::Query;
use purser_domain::{CallResult, Delivery, DeliveryState};
use purser_store::Page;
use uuid::Uuid;

pub(crate) const ROWS: u32 = 25;

/// An invalid cursor selects the first page.
pub(crate) fn parse_cursor(uri: &Uri) -> Option<Uuid> {
    Query::without_blanks(uri).parse_with("cursor", cursor::parse_uuid_cursor, "")
}

pub(crate) fn deliveries_section(
    layout: &Layout,
    deliveries: &Page<Delivery, Uuid>,
    is_after_first_page: bool,
    path: &str,
) -> Markup {
    html! {
        section id="deliveries" aria-labelledby="deliveries-title" {
            div.section-head {
                h2 id="deliveries-title" { "Deliveries " span.muted { "of 30 days" } }
                a.button href=(format!("{path}#deliveries")) { "Look again" }
            }
            @if deliveries.items.is_empty() {
                p.empty { "There are no deliveries yet. Send a test event to try the webhook." }
            } @else {
                table.list {
                    caption.sr { "Deliveries, newest event first" }
                    (column_headings(&["Event", "State", "Last call", "Calls", "Next", "Again"].map(Column::Text)))
                    tbody { @for delivery in &deliveries.items { (delivery_row(layout, delivery, path)) } }
                }
            }
            (first_and_next_links(
                "Pages of deliveries",
                is_after_first_page.then(|| ("Newest", format!("{path}#deliveries"))),
                deliveries.next.map(|older| ("Older", format!("{path}?cursor={}#deliveries", cursor::format_uuid_cursor(older)))),
            ))
        }
    }
}

fn delivery_row(layout: &Layout, delivery: &Delivery, path: &str) -> Markup {
    let again = match delivery.state {
        DeliveryState::Waiting => "Send now",
        DeliveryState::Delivered | DeliveryState::Failed => "Send again",
    };
    html! {
        tr {
            th scope="row" { span title=(delivery.event_id) { (delivery.kind.label()) } }
            td data-label="State" { (state_chip(delivery.state)) }
            td data-label="Last call" {
                @match &delivery.last {
                    None => span.muted { "none yet" },
                    Some(last) => {
                        (call_result_text(last.result)) " "
                        span.muted { "in " (last.took.millis()) " ms, " (relative_time(last.at, layout.now)) }
                        span.sr { ", " (exact_time(last.at)) }
                    }
                }
            }
            td data-label="Calls" { (delivery.attempts) }
            td data-label="Next" {
                @match delivery.next_at { Some(at) => (relative_time(at, layout.now)), None => span.muted { "none" } }
            }
            td data-label="Again" {
                (layout.button_form(&format!("{path}/deliveries/{}/redeliver", delivery.id), &Button::quiet(again)))
            }
        }
    }
}

fn state_chip(state: DeliveryState) -> Markup {
    match state {
        DeliveryState::Waiting => html! { span.chip.wait { "waiting" } },
        DeliveryState::Delivered => html! { span.chip.good { "delivered" } },
        DeliveryState::Failed => html! { span.chip.bad { "given up" } },
    }
}

pub(crate) fn call_result_text(result: CallResult) -> String {
    match result {
        CallResult::Status(status) => format!("answered {status}"),
        CallResult::Timeout => "no answer in time".to_owned(),
        CallResult::Unreachable => "no connection".to_owned(),
        CallResult::UnknownHost => "unknown host".to_owned(),
        CallResult::BlockedAddress => "not a public address".to_owned(),
    }
}
