//! Makes texts from agents, users and providers safe for other readers.

use crate::value::hidden::{chars_with_hidden_flag, is_invisible};

/// Returns the text for display, with each hidden character replaced by the code point.
pub fn escape_hidden_characters(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (char, is_hidden) in chars_with_hidden_flag(text) {
        if is_hidden {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// Returns whether readers see a new text as written: it has a visible character and no direction control. Stored texts
/// may be older than this rule.
pub fn is_displayable(text: &str) -> bool {
    text.chars().any(|char| !char.is_whitespace() && !is_invisible(char)) && !text.chars().any(is_direction_control)
}

/// Returns whether a character is one of Unicode's bidirectional controls (UAX #9, `Bidi_Control`).
const fn is_direction_control(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_and_bidirectional_characters_are_escaped() {
        assert_eq!(escape_hidden_characters("Grüße,\n日本 👍"), "Grüße,\n日本 👍");
        assert_eq!(escape_hidden_characters("pay \u{202e}eerf"), r"pay \u{202e}eerf");
        for readable in [
            "👩\u{200d}💻",
            "🏳\u{fe0f}\u{200d}🌈",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "ශ්\u{200d}රී",
        ] {
            assert_eq!(escape_hidden_characters(readable), readable);
        }
        assert_eq!(
            escape_hidden_characters("pa\u{200d}y\u{200c} \u{200d}"),
            r"pa\u{200d}y\u{200c} \u{200d}"
        );
        assert_eq!(
            escape_hidden_characters("a\u{200b}b\tc\u{7f}\u{e0041}"),
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
            assert_eq!(
                escape_hidden_characters(&blank.to_string()),
                blank.escape_unicode().to_string()
            );
        }
    }

    #[test]
    fn readable_texts_are_visible_without_direction_controls() {
        let flag = "\u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}";
        for text in [
            "a",
            "é",
            "日本",
            "👩\u{200d}💻",
            "❤\u{fe0f}",
            "می\u{200c}خواهم",
            flag,
            "שלום",
        ] {
            assert!(is_displayable(text), "{text:?}");
        }
        for text in [
            "",
            " ",
            "\u{200b}",
            "\u{3164}",
            " \u{2060}\u{feff} ",
            "\u{2800}",
            "\u{e0067}\u{e007f}",
        ] {
            assert!(!is_displayable(text), "{text:?}");
        }
        let marks = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter();
        for mark in marks.chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            assert!(!is_displayable(&format!("a{mark}b")), "{mark:?}");
        }
    }
}
