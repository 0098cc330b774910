//! Decodes the text of a response with the response's charset.

use encoding_rs::{DecoderResult, Encoding, UTF_8};

/// The number of bytes at the start of an HTML or XML document that are searched for a charset declaration.
const PROLOGUE: usize = 1024;

/// Substrings of the content types of text.
const TEXTS: [&str; 5] = ["text/", "json", "xml", "javascript", "charset="];

/// Decodes a text body. Returns `None` if the body is not valid text in the charset.
///
/// The charset is the first of: a byte order mark, the charset in `content_type`, the document's declaration, UTF-8. If
/// `is_whole` is false, an incomplete last character is dropped.
pub fn decode_text(content_type: Option<&str>, body: &[u8], is_whole: bool) -> Option<String> {
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    // The first bytes of an image or an audio file may look like a byte order mark of UTF-16.
    let is_text = TEXTS.iter().any(|kind| content_type.contains(kind)) || content_type.is_empty();
    let bom = Encoding::for_bom(body).filter(|(encoding, _)| is_text || *encoding == UTF_8);
    let (encoding, mark) = bom.unwrap_or_else(|| {
        let declared = label_after(&content_type, &["charset="]);
        (
            declared
                .or_else(|| find_declared_charset(&content_type, body))
                .unwrap_or(UTF_8),
            0,
        )
    });
    let body = body.get(mark..)?;
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut text = String::with_capacity(decoder.max_utf8_buffer_length_without_replacement(body.len())?);
    match decoder.decode_to_string_without_replacement(body, &mut text, is_whole) {
        (DecoderResult::InputEmpty, _) => Some(text),
        _ => None,
    }
}

/// Returns the charset that is declared at the start of an HTML or XML document.
fn find_declared_charset(content_type: &str, body: &[u8]) -> Option<&'static Encoding> {
    if !content_type.contains("html") && !content_type.contains("xml") {
        return None;
    }
    let start = body.get(..PROLOGUE).unwrap_or(body);
    let start = String::from_utf8_lossy(start).to_ascii_lowercase();
    label_after(&start, &["charset=", "encoding="])
}

/// Returns the encoding for the label that follows one of these names.
fn label_after(text: &str, names: &[&str]) -> Option<&'static Encoding> {
    let mut labels = names.iter().filter_map(|name| text.split_once(name));
    let (_, rest) = labels.next()?;
    let rest = rest.trim_start_matches(['"', '\'', ' ']);
    let label = rest.split(['"', '\'', ' ', ';', '>', '/', '?', ',']).next()?;
    Encoding::for_label(label.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_by_its_charset() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        let rows: [(&str, &[u8], Option<&str>); 18] = [
            ("", "Grüße".as_bytes(), Some("Grüße")),
            ("text/plain", b"Gr\xfc\xdfe", None),
            ("text/plain; charset=iso-8859-1", b"Gr\xfc\xdfe", Some("Grüße")),
            ("text/plain; charset=\"ISO-8859-1\"", b"Gr\xfc\xdfe", Some("Grüße")),
            ("application/json;charset=windows-1252", b"\"\x80 5\"", Some("\"€ 5\"")),
            ("text/plain; Charset=Shift_JIS; x=y", b"\x93\xfa\x96\x7b", Some("日本")),
            ("text/csv; charset=gb18030", b"\xc4\xe3", Some("你")),
            ("text/plain; charset=utf-16be", &utf16("é"), Some("é")),
            ("text/plain; charset=koi8-r", b"\xc4\xc1", Some("да")),
            // A byte order mark has precedence over the header, as in browsers.
            ("text/plain; charset=iso-8859-1", b"\xef\xbb\xbf\xc3\xa9", Some("é")),
            ("application/json", b"\xff\xfe{\0}\0", Some("{}")),
            (
                "text/html",
                b"<meta charset=\"windows-1251\"><p>\xe4\xe0",
                Some("<meta charset=\"windows-1251\"><p>да"),
            ),
            (
                "text/xml",
                b"<?xml version='1.0' encoding='latin1'?>\xe9",
                Some("<?xml version='1.0' encoding='latin1'?>é"),
            ),
            // A declaration of the charset counts only in HTML and XML documents.
            ("text/plain", b"charset=latin1 \xe9", None),
            ("text/plain; charset=no-such", b"ok", Some("ok")),
            ("text/plain; charset=utf-8", b"\xe9", None),
            ("audio/mpeg", b"\xff\xfe\x41\x00", None),
            ("image/png", b"\x89PNG\r\n\x1a\n", None),
        ];
        for (content_type, body, text) in rows {
            assert_eq!(
                decode_text(Some(content_type), body, true).as_deref(),
                text,
                "{content_type}"
            );
        }
    }

    #[test]
    fn a_cut_body_ends_before_its_last_partial_character() {
        for (content_type, body) in [
            ("", &b"a\xe2\x82"[..]),
            ("text/plain; charset=utf-16le", b"a\0b"),
            ("text/plain; charset=shift_jis", b"a\x93"),
        ] {
            assert_eq!(
                decode_text(Some(content_type), body, false).as_deref(),
                Some("a"),
                "{content_type}"
            );
            assert_eq!(decode_text(Some(content_type), body, true), None, "{content_type}");
        }
    }
}
