//! The CSRF token of a form, which each response contains under a new random mask (`mask || (token ⊕ mask)`).
//!
//! The length of a compressed page reveals whether a text occurs twice, so an attacker could guess an unmasked token
//! (BREACH).

use crate::digest::{hexadecimal, sha256};
use maud::{Markup, html};
use subtle::ConstantTimeEq as _;
use url::form_urlencoded;

/// The length of the token and of the mask, in bytes.
pub(crate) const LENGTH: usize = 32;

/// A session's form token, and the mask for one response.
#[derive(Clone)]
pub(crate) struct FormToken {
    token: [u8; LENGTH],
    mask: [u8; LENGTH],
}

impl FormToken {
    pub(crate) const FIELD: &str = "form_token";

    /// The token is a hash of the session's secret. `mask` must be random and used for one response.
    pub(crate) fn for_session(session: &str, mask: [u8; LENGTH]) -> Self {
        let token = sha256(&[b"purser/dashboard/form/v1\0", session.as_bytes()]);
        Self { token, mask }
    }

    /// Returns the token with a zero mask, so that two rendered pages with the same token are equal. A token with a
    /// zero mask must never be sent to a browser.
    pub(crate) fn with_zero_mask(&self) -> Self {
        Self {
            mask: [0; LENGTH],
            ..*self
        }
    }

    /// Returns whether the form's body contains this token exactly once, under any mask. Takes constant time.
    pub(crate) fn matches_form(&self, body: &[u8]) -> bool {
        let fields = form_urlencoded::parse(body);
        let mut tokens = fields.filter(|(name, _)| name == Self::FIELD).map(|(_, value)| value);
        let (result, again) = (tokens.next().unwrap_or_default(), tokens.next());
        let Some((mask, masked)) = parse_mask_and_token(&result) else {
            return false;
        };
        let is_ours: bool = self.token.ct_eq(&xor(mask, masked)).into();
        is_ours && again.is_none()
    }

    pub(crate) fn hidden_input(&self) -> Markup {
        let value = hexadecimal(&[self.mask, xor(self.token, self.mask)].concat());
        html! { input type="hidden" name=(Self::FIELD) value=(value); }
    }
}

fn xor(mut left: [u8; LENGTH], right: [u8; LENGTH]) -> [u8; LENGTH] {
    for (byte, with) in left.iter_mut().zip(right) {
        *byte ^= with;
    }
    left
}

/// Splits a field's value into the mask and the masked token.
fn parse_mask_and_token(value: &str) -> Option<([u8; LENGTH], [u8; LENGTH])> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte.checked_sub(b'0'),
        b'a'..=b'f' => byte.checked_sub(b'a')?.checked_add(10),
        _ => None,
    };
    let (pairs, rest) = value.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let (mask, masked) = bytes.split_at_checked(LENGTH)?;
    rest.is_empty()
        .then_some((mask.try_into().ok()?, masked.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    static_assertions::assert_not_impl_any!(FormToken: PartialEq, std::fmt::Debug);

    fn value(token: &FormToken) -> String {
        let input = token.hidden_input().into_string();
        let (_, rest) = input.split_once("value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    #[test]
    fn a_form_token_belongs_to_one_session() {
        let token = FormToken::for_session("session", [7; LENGTH]);
        let ours = format!("a=1&form_token={}", value(&token));
        for mask in [7, 0, 255] {
            assert!(FormToken::for_session("session", [mask; LENGTH]).matches_form(ours.as_bytes()));
        }
        let another = value(&FormToken::for_session("another", [7; LENGTH]));
        let others = [
            format!("a=1&form_token={another}"),
            format!("{ours}&form_token=x"),
            format!("{ours}00"),
            ours.get(..ours.len() - 2).unwrap().to_owned(),
            ours.to_uppercase(),
            format!("form_token={}", "ä".repeat(64)),
            "form_token=".to_owned(),
            String::new(),
        ];
        for body in others {
            assert!(!token.matches_form(body.as_bytes()), "{body}");
        }
        assert!(!ours.contains("session"));
    }

    /// A token that shows through the mask would have four equal digits at the same position of both values.
    #[test]
    fn two_responses_mask_the_form_token_differently() {
        let mask = |seed: u8| {
            std::array::from_fn(|n| {
                seed.wrapping_mul(31)
                    .wrapping_add(u8::try_from(n).unwrap().wrapping_mul(seed))
            })
        };
        let [one, other] = [3, 5].map(|seed| value(&FormToken::for_session("session", mask(seed))));
        let places = one.as_bytes().windows(4).zip(other.as_bytes().windows(4));
        assert_eq!(places.filter(|(one, other)| one == other).count(), 0, "{one} {other}");
    }
}
