//! Formats and parses cursors, which are positions in a list as opaque text.

use purser_domain::{AgentId, ApprovalId, Timestamp};
use purser_store::{AgentCursor, ApprovalCursor};
use uuid::Uuid;

/// The validation error for an invalid cursor.
pub(crate) const FORM: &str = "must be the `next_cursor` of an earlier answer";

/// Parses a position in a list of decisions or settlements.
pub(crate) fn parse_uuid_cursor(text: &str) -> Option<Uuid> {
    let place = Uuid::try_parse(text).ok()?;
    (format_uuid_cursor(place) == text).then_some(place)
}

pub(crate) fn format_uuid_cursor(id: Uuid) -> String {
    id.simple().to_string()
}

/// In a version history, the version is the cursor.
pub(crate) fn parse_version_cursor(text: &str) -> Option<u64> {
    let version: u64 = text.parse().ok()?;
    (version > 0 && version.to_string() == text).then_some(version)
}

/// The format is 16 hexadecimal digits of the creation time, followed by the agent's id.
pub(crate) fn parse_agent_cursor(text: &str) -> Option<AgentCursor> {
    let (at, id) = text.split_at_checked(16)?;
    let place = AgentCursor {
        created_at: Timestamp::from_micros(i64::from_str_radix(at, 16).ok()?)?,
        id: AgentId::from_uuid(parse_uuid_cursor(id)?),
    };
    (format_agent_cursor(place) == text).then_some(place)
}

pub(crate) fn format_agent_cursor(cursor: AgentCursor) -> String {
    format!(
        "{:016x}{}",
        cursor.created_at.micros(),
        format_uuid_cursor(cursor.id.uuid())
    )
}

/// The format is 16 hexadecimal digits of the creation time, followed by the approval's id.
pub(crate) fn parse_approval_cursor(text: &str) -> Option<ApprovalCursor> {
    let (at, id) = text.split_at_checked(16)?;
    let micros = i64::from_str_radix(at, 16).ok()?;
    let place = ApprovalCursor {
        created_at: Timestamp::from_micros(micros)?,
        id: ApprovalId::from_uuid(parse_uuid_cursor(id)?),
    };
    (format_approval_cursor(place) == text).then_some(place)
}

pub(crate) fn format_approval_cursor(cursor: ApprovalCursor) -> String {
    format!(
        "{:016x}{}",
        cursor.created_at.micros(),
        format_uuid_cursor(cursor.id.uuid())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cursors_survive_formatting_and_parsing(id: u128, micros in 0..=Timestamp::MAX.micros()) {
            let id = Uuid::from_u128(id);
            prop_assert_eq!(parse_uuid_cursor(&format_uuid_cursor(id)), Some(id));
            let place = ApprovalCursor { created_at: Timestamp::from_micros(micros).unwrap(), id: ApprovalId::from_uuid(id) };
            prop_assert_eq!(parse_approval_cursor(&format_approval_cursor(place)), Some(place));
            let place = AgentCursor { created_at: place.created_at, id: AgentId::from_uuid(id) };
            prop_assert_eq!(parse_agent_cursor(&format_agent_cursor(place)), Some(place));
        }

        #[test]
        fn malformed_cursors_are_rejected(text in "\\PC{0,64}") {
            if let Some(place) = parse_uuid_cursor(&text) {
                prop_assert_eq!(format_uuid_cursor(place), text.clone());
            }
            if let Some(place) = parse_approval_cursor(&text) {
                prop_assert_eq!(format_approval_cursor(place), text);
            }
        }
    }

    #[test]
    fn each_list_position_has_exactly_one_cursor() {
        let id = "018f2f6e0c0070008000000000000001";
        assert!(parse_uuid_cursor(id).is_some() && parse_approval_cursor(&format!("000660a1b2c3d4e5{id}")).is_some());
        for text in [
            "",
            "0",
            &id.to_uppercase().replace('0', "F"),
            "018f2f6e-0c00-7000-8000-000000000001",
            id.trim_start_matches('0'),
        ] {
            assert_eq!(parse_uuid_cursor(text), None, "{text}");
        }
        for time in [
            "",
            "+00660a1b2c3d4e5",
            "000660A1B2C3D4E5",
            "ffffffffffffffff",
            "7fffffffffffffff",
            "é00000000000000",
        ] {
            assert_eq!(parse_approval_cursor(&format!("{time}{id}")), None, "{time}");
        }
    }
}
