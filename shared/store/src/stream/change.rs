//! A record of a DynamoDB stream, in Lambda's JSON format (developer guide, "Using Lambda with `DynamoDB`").

use crate::codec::attribute::Item;
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use purser_domain::Timestamp;
use serde_json::{Map, Value};

/// A changed row, from a record of a DynamoDB stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The name of the DynamoDB table that contains the changed row.
    pub table: String,
    /// The sequence number of the stream record in the shard.
    pub sequence: String,
    /// The time of the change, to the second, from the stream record.
    pub at: Timestamp,
    pub(crate) old: Option<Item>,
    pub(crate) new: Option<Item>,
}

/// An unreadable stream record. The error contains names of fields and keys, and never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{member}` of a stream record can't be read")]
pub struct Unreadable {
    /// The name of the unreadable field.
    pub member: &'static str,
    /// The sequence number of the stream record in the shard, if known.
    pub sequence: Option<String>,
}

impl Change {
    /// Parses a stream record, which must contain the old or the new image of the row.
    pub fn parse(record: &Value) -> Result<Self, Unreadable> {
        let stream = record.get("dynamodb");
        let sequence = stream
            .and_then(|stream| stream.get("SequenceNumber"))
            .and_then(Value::as_str);
        let wrong = |field: &'static str| {
            let sequence = sequence.map(str::to_owned);
            move || Unreadable {
                member: field,
                sequence,
            }
        };
        let stream = stream.and_then(Value::as_object).ok_or_else(wrong("dynamodb"))?;
        let arn = record.get("eventSourceARN").and_then(Value::as_str);
        let table = arn.and_then(parse_table_name).ok_or_else(wrong("eventSourceARN"))?;
        let at = stream.get("ApproximateCreationDateTime").and_then(parse_time);
        let image = |field: &'static str| match stream.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(image) => decode_dynamodb_json(image).map(Some).ok_or_else(wrong(field)),
        };
        let (old, new) = (image("OldImage")?, image("NewImage")?);
        if old.is_none() && new.is_none() {
            // The record has no image of the row, so the view type of the stream is not `NEW_AND_OLD_IMAGES`.
            return Err(wrong("NewImage")());
        }
        Ok(Self {
            table: table.to_owned(),
            sequence: sequence.ok_or_else(wrong("SequenceNumber"))?.to_owned(),
            at: at.ok_or_else(wrong("ApproximateCreationDateTime"))?,
            old,
            new,
        })
    }

    /// Returns the row's key for the log. Keys contain only ids and hashes.
    pub fn row_key(&self) -> String {
        let image = self.new.as_ref().or(self.old.as_ref());
        let part = |name| {
            let value = image.and_then(|image| image.get(name));
            value.and_then(|value| value.as_s().ok()).map_or("", String::as_str)
        };
        format!("{} {}", part("pk"), part("sk")).trim_end().to_owned()
    }

    /// Only the DynamoDB emulator of the tests sends records of unchanged rows.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.old == self.new
    }
}

/// Parses the table name from a stream's ARN: `arn:aws:dynamodb:<region>:<account>:table/<name>/stream/<label>`.
fn parse_table_name(arn: &str) -> Option<&str> {
    let (_, rest) = arn.split_once(":table/")?;
    let (table, _) = rest.split_once("/stream/")?;
    Some(table)
}

/// Parses seconds since the epoch. A fraction is ignored.
fn parse_time(value: &Value) -> Option<Timestamp> {
    let text = value.as_number()?.to_string();
    let secs = text.split('.').next()?.parse().ok()?;
    Timestamp::from_secs(secs)
}

/// Parses DynamoDB JSON: objects with the type as the key (API reference, `AttributeValue`).
pub(crate) fn decode_dynamodb_json(value: &Value) -> Option<Item> {
    decode_map(value.as_object()?)
}

fn decode_map(fields: &Map<String, Value>) -> Option<Item> {
    let map = fields.iter();
    map.map(|(name, value)| Some((name.clone(), decode_attribute(value)?)))
        .collect()
}

fn decode_attribute(value: &Value) -> Option<AttributeValue> {
    let mut fields = value.as_object()?.iter();
    let ((kind, value), None) = (fields.next()?, fields.next()) else {
        return None;
    };
    let text = || value.as_str().map(str::to_owned);
    let texts = || -> Option<Vec<String>> {
        let values = value.as_array()?.iter();
        values.map(|value| value.as_str().map(str::to_owned)).collect()
    };
    Some(match kind.as_str() {
        "S" => AttributeValue::S(text()?),
        "N" => AttributeValue::N(text()?),
        "B" => AttributeValue::B(decode_bytes(value.as_str()?)?),
        "BOOL" => AttributeValue::Bool(value.as_bool()?),
        "NULL" => AttributeValue::Null(value.as_bool()?),
        "SS" => AttributeValue::Ss(texts()?),
        "NS" => AttributeValue::Ns(texts()?),
        "BS" => {
            let values = texts()?;
            AttributeValue::Bs(values.iter().map(|text| decode_bytes(text)).collect::<Option<_>>()?)
        }
        "L" => AttributeValue::L(value.as_array()?.iter().map(decode_attribute).collect::<Option<_>>()?),
        "M" => AttributeValue::M(decode_map(value.as_object()?)?),
        _ => return None,
    })
}

fn decode_bytes(text: &str) -> Option<Blob> {
    BASE64_STANDARD.decode(text).ok().map(Blob::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(change: impl Fn(&mut Value)) -> Value {
        let mut record = json!({
            "eventID": "1", "eventName": "MODIFY",
            "eventSourceARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/Ledger-1/stream/2026-11-21T00:00:00.000",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_795_223_340,
                "Keys": {"pk": {"S": "A#1"}, "sk": {"S": "#"}},
                "OldImage": {"pk": {"S": "A#1"}, "sk": {"S": "#"}, "n": {"N": "1"}},
                "NewImage": {
                    "pk": {"S": "A#1"}, "sk": {"S": "#"}, "n": {"N": "2"}, "b": {"B": "AQI="}, "bs": {"BS": ["AQ=="]},
                    "l": {"L": [{"BOOL": true}, {"NULL": true}]}, "m": {"M": {"ss": {"SS": ["x"]}, "ns": {"NS": ["1"]}}}
                },
                "SequenceNumber": "100", "SizeBytes": 1, "StreamViewType": "NEW_AND_OLD_IMAGES"
            }
        });
        change(&mut record);
        record
    }

    #[test]
    fn stream_records_are_parsed_with_their_images() {
        let change = Change::parse(&record(|_| {})).unwrap();
        assert_eq!((change.table.as_str(), change.sequence.as_str()), ("Ledger-1", "100"));
        assert_eq!(change.at.to_string(), "2026-11-21T01:09:00.000000Z");
        assert_eq!(change.row_key(), "A#1 #");
        assert!(!change.is_unchanged());
        let new = change.new.unwrap();
        assert_eq!(new["n"], AttributeValue::N("2".to_owned()));
        assert_eq!(new["b"], AttributeValue::B(Blob::new([1, 2])));
        assert_eq!(new["bs"], AttributeValue::Bs(vec![Blob::new([1])]));
        let with_fraction = record(|record| {
            record["dynamodb"]["ApproximateCreationDateTime"] = json!(1_795_223_340.9);
        });
        assert_eq!(Change::parse(&with_fraction).unwrap().at, change.at);
    }

    #[test]
    fn invalid_stream_records_name_the_faulty_field() {
        type Spoil = fn(&mut Value);
        let rows: [(&str, Spoil); 6] = [
            ("dynamodb", |record| record["dynamodb"] = json!(null)),
            ("eventSourceARN", |record| {
                record["eventSourceARN"] = json!("arn:aws:sqs:x:1:queue");
            }),
            ("ApproximateCreationDateTime", |record| {
                record["dynamodb"]["ApproximateCreationDateTime"] = json!("now");
            }),
            ("NewImage", |record| {
                record["dynamodb"]["NewImage"]["n"] = json!({"X": "1"});
            }),
            ("NewImage", |record| {
                record["dynamodb"]["NewImage"] = json!(null);
                record["dynamodb"]["OldImage"] = json!(null);
            }),
            ("OldImage", |record| {
                record["dynamodb"]["OldImage"]["n"] = json!({"N": "1", "S": "1"});
            }),
        ];
        for (member, spoil) in rows {
            let problem = Change::parse(&record(spoil)).unwrap_err();
            assert_eq!(problem.member, member);
            assert_eq!(problem.sequence.is_some(), member != "dynamodb", "{member}");
        }
    }
}
