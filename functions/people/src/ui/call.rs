//! The call of a payment, as its agent describes it. It is shown in full, since a truncated part could hide anything.
//!
//! The agent writes all of it. Characters that are invisible or could cover other text are therefore shown as their
//! code points.

use crate::ui::money::money;
use icu_properties::{CodePointSetData, props::DefaultIgnorableCodePoint};
use maud::{Markup, html};
use purser_domain::{Amount, CallDescription, CatalogPrice, Metadata, Url};
use serde_json::Value;
use url::Position;

/// The call, compared with the amount requested for it.
pub(crate) fn described(call: &CallDescription, asked: Amount) -> Markup {
    html! {
        dl.facts-list.wide.call {
            div {
                dt { "Calls" }
                dd { strong.method { (call.request.method) } " " (address(&call.request.url)) }
            }
            @if let Some(target) = &call.target_url {
                div { dt { "Fetches from" } dd { (address(target)) } }
            }
            div { dt { "Price" } dd { (price(asked, call.catalog_price)) } }
            @if let Some(hash) = &call.request.body_hash {
                div { dt { "Body’s hash" } dd { code.long { (visible(hash)) } " " span.aside { "as the agent says" } } }
            }
            @if !call.metadata.is_empty() {
                div { dt { "The agent says" } dd { (said(&call.metadata)) } }
            }
        }
    }
}

/// A full URL of any length, with its host highlighted.
fn address(url: &Url) -> Markup {
    html! {
        code.long {
            (&url[..Position::BeforeHost])
            strong.host { (&url[Position::BeforeHost..Position::AfterPort]) }
            (&url[Position::AfterPort..])
        }
    }
}

fn price(asked: Amount, listed: Option<CatalogPrice>) -> Markup {
    let Some(CatalogPrice { price, most }) = listed else {
        return html! { "Asks " (money(asked)) p.aside { "Not compared: the catalog was not read, or does not list this call." } };
    };
    html! {
        "Asks " (money(asked)) " · listed at " (money(price)) " · "
        @match most {
            Some(most) => { "ceiling " (money(most)) },
            None => "can’t be paid at this price",
        }
        @if let Some(above) = asked.minus(price).filter(|above| !above.is_zero()) {
            p.warning {
                (money(above)) " above the listed price"
                @if most.is_some_and(|most| asked > most) { ", and above the ceiling" }
            }
        }
    }
}

fn said(metadata: &Metadata) -> Markup {
    html! {
        table.said {
            caption.sr { "The agent’s description of the call" }
            tbody {
                @for (name, value) in metadata.members() {
                    tr {
                        th scope="row" { bdi { (visible(name)) } }
                        td { bdi { @match value { Value::String(text) => (visible(text)), other => (other) } } }
                    }
                }
            }
        }
        p.aside { "Written by the agent. Not used in the decision." }
    }
}

/// The text as pages show what agents, users and providers write: each invisible character is replaced by its code
/// point. Joiners and variation selectors stay after a character of a script or an emoji that they form.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for char in text.chars() {
        let is_joined = matches!(char, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
        if is_invisible(char) && !(is_joined && forms(before)) {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
        before = char;
    }
    shown
}

/// Whether a joiner or a variation selector after this character can change how the character is drawn. A presentation
/// selector may stand before a joiner, as in the rainbow flag.
fn forms(char: char) -> bool {
    char == '\u{fe0f}' || !(char.is_ascii() || char.is_whitespace() || is_invisible(char))
}

/// Whether a character is a control other than the line break, is blank, or changes how its neighbours are drawn. The
/// latter are Unicode's default-ignorable code points, the line and paragraph separators, the interlinear annotations,
/// and the blank Braille pattern.
fn is_invisible(char: char) -> bool {
    char.is_control() && char != '\n'
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{2800}' | '\u{fff9}'..='\u{fffb}')
        || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is shown as its code point.
    #[test]
    fn invisible_and_bidirectional_characters_are_escaped() {
        assert_eq!(visible("Grüße,\n日本 👍"), "Grüße,\n日本 👍");
        assert_eq!(visible("pay \u{202e}eerf"), r"pay \u{202e}eerf");
        for readable in [
            "👩\u{200d}💻",
            "🏳\u{fe0f}\u{200d}🌈",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "ශ්\u{200d}රී",
        ] {
            assert_eq!(visible(readable), readable);
        }
        assert_eq!(visible("pa\u{200d}y\u{200c} \u{200d}"), r"pa\u{200d}y\u{200c} \u{200d}");
        assert_eq!(
            visible("a\u{200b}b\tc\u{7f}\u{e0041}"),
            r"a\u{200b}b\u{9}c\u{7f}\u{e0041}"
        );
        for blank in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180b}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff0}',
            '\u{fffb}',
            '\u{1bca0}',
            '\u{1bca3}',
            '\u{1d173}',
            '\u{1d17a}',
            '\u{e0fff}',
        ] {
            assert_eq!(visible(&blank.to_string()), blank.escape_unicode().to_string());
        }
    }

    #[test]
    fn urls_are_shown_in_full_with_emphasized_host() {
        let long = format!("https://a.example:8443/p?{}<b>#end", "q".repeat(2_000));
        let html = address(&Url::parse(&long).unwrap()).into_string();
        assert!(html.contains("https://<strong class=\"host\">a.example:8443</strong>/p?"));
        assert!(
            html.contains(&"q".repeat(2_000)) && html.ends_with("%3Cb%3E#end</code>"),
            "{html}"
        );
    }

    /// A call without a payable price or outside the catalog has a note, too.
    #[test]
    fn prices_above_the_listed_price_show_a_warning() {
        let units = |units| Amount::from_units(units).unwrap();
        let listed = |most| {
            Some(CatalogPrice {
                price: units(10_000),
                most,
            })
        };
        let told = |asked, listed| price(units(asked), listed).into_string();
        let plain = told(10_000, listed(Some(units(50_000))));
        assert!(!plain.contains("above") && plain.contains("· ceiling "), "{plain}");
        let above = told(40_000, listed(Some(units(50_000))));
        assert!(
            above.contains(" above the listed price<") && above.contains("$0.03"),
            "{above}"
        );
        assert!(told(60_000, listed(Some(units(50_000)))).contains("and above the ceiling"));
        assert!(told(10_000, listed(None)).contains("can’t be paid at this price"));
        assert!(told(10_000, None).contains("does not list this call"));
    }
}
