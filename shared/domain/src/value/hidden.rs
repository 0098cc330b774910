//! Defines which characters of an untrusted text are hidden from readers. `purser-mcp` is published without this crate
//! and contains this file through a symbolic link.

use icu_properties::{CodePointSetData, props::DefaultIgnorableCodePoint};

/// Returns each character, with `true` if it is hidden: an invisible character or a direction mark. Joiners, variation
/// selectors and flag tags that change a visible neighbor are not hidden (UTS #51, ED-14a).
pub(crate) fn chars_with_hidden_flag(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut rest = text.chars();
    let mut previous = ' ';
    let mut tags = 0_usize;
    std::iter::from_fn(move || {
        let char = rest.next()?;
        let hidden = tags == 0 && is_invisible(char) && !changes_previous_character(previous, char);
        tags = match char {
            BLACK_FLAG => count_region_flag_tags(rest.as_str()),
            _ => tags.saturating_sub(1),
        };
        previous = if hidden { ' ' } else { char };
        Some((char, hidden))
    })
}

/// Returns whether a character is a control character, is blank, or changes how neighboring characters are drawn. A
/// line break is not invisible.
pub(crate) fn is_invisible(char: char) -> bool {
    char.is_control() && char != '\n'
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{2800}' | '\u{fff9}'..='\u{fffb}')
        || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(char)
}

const BLACK_FLAG: char = '\u{1f3f4}';
const END_OF_TAGS: char = '\u{e007f}';

/// Returns the number of tag characters that turn a black flag into the flag of a region, for example `gbsct` and the
/// end tag.
fn count_region_flag_tags(text: &str) -> usize {
    let is_tag = |char: &char| matches!(char, '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}');
    let count = text.chars().take_while(is_tag).count();
    let is_flag = (3..=6).contains(&count) && text.chars().nth(count) == Some(END_OF_TAGS);
    if is_flag { count.saturating_add(1) } else { 0 }
}

/// Returns whether a character changes how the previous character looks.
fn changes_previous_character(previous: char, char: char) -> bool {
    match char {
        // The combining grapheme joiner, and the zero-width non-joiner and joiner.
        '\u{34f}' | '\u{200c}' | '\u{200d}' => is_joining_character(previous),
        // Selectors that choose a variant of a Mongolian letter.
        '\u{180b}'..='\u{180d}' | '\u{180f}' => matches!(previous, '\u{1820}'..='\u{18aa}'),
        // A blank Braille cell in a Braille text.
        '\u{2800}' => matches!(previous, '\u{2800}'..='\u{28ff}'),
        // The variation selectors for text and emoji presentation, which also follow the `#`, `*` or digit of a keycap.
        '\u{fe0e}' | '\u{fe0f}' => {
            matches!(previous, '#' | '*' | '0'..='9' | '\u{a9}' | '\u{ae}')
                || is_joining_character(previous)
                || is_symbol_with_variants(previous)
        }
        // Standardized variants of Myanmar letters, mathematical symbols and ideographs.
        '\u{fe00}'..='\u{fe02}' => {
            matches!(previous, '\u{1000}'..='\u{109f}' | '\u{aa60}'..='\u{aa7f}')
                || is_symbol_with_variants(previous)
                || is_ideograph(previous)
        }
        '\u{e0100}'..='\u{e01ef}' => is_ideograph(previous),
        _ => false,
    }
}

/// Returns whether a following joiner can change how the character looks: whether the character is an emoji,
/// or a letter or mark of a script whose letters join.
fn is_joining_character(char: char) -> bool {
    matches!(char,
        '\u{590}'..='\u{61b}' | '\u{61d}'..='\u{10ff}' | '\u{1200}'..='\u{180a}' | '\u{180f}'..='\u{1dff}'
        | '\u{2194}'..='\u{21ff}' | '\u{2300}'..='\u{27bf}' | '\u{2900}'..='\u{2bff}' | '\u{a800}'..='\u{abff}'
        | '\u{fb1d}'..='\u{fdff}' | '\u{fe0f}' | '\u{fe70}'..='\u{fefe}' | '\u{10a00}'..='\u{11fff}'
        | '\u{1e900}'..='\u{1eeff}' | '\u{1f000}'..='\u{1faff}')
}

/// Returns whether a character is a symbol with variants, for example `‼`, `™` or `〰`.
fn is_symbol_with_variants(char: char) -> bool {
    matches!(
        char,
        '\u{203c}' | '\u{2049}' | '\u{2100}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
    )
}

fn is_ideograph(char: char) -> bool {
    matches!(char, '\u{3000}'..='\u{3002}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}
