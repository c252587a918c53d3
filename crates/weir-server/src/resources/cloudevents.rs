//! CloudEvents 1.0 over HTTP. Binary, structured and batched mode store one form of record;
//! attributes are metadata beside the payload.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::value::RawValue;
use weir_core::{Record, RecordKind};

use super::bounded::Members;
use super::meta::{Declared, Meta, MetaWriter, Shape, declared, shape, typed};
use crate::http::base64;
use crate::http::date;
use crate::http::head::{FieldName, Head};
use crate::http::json::Object;
use crate::http::problem::{Kind, Problem};
use crate::http::query::decode;
use crate::http::reply::Reply;

/// Attributes of an event, by name.
pub(crate) type Attributes = BTreeMap<String, String>;

const REQUIRED: [&str; 4] = ["id", "source", "specversion", "type"];

fn media(head: &Head) -> &str {
    head.text(FieldName::ContentType).unwrap_or_default()
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Whether the body is a batch of events.
pub(crate) fn is_batch(head: &Head) -> bool {
    starts_with(media(head), "application/cloudevents-batch")
}

/// Whether the body is one event with its envelope.
pub(crate) fn is_structured(head: &Head) -> bool {
    starts_with(media(head), "application/cloudevents") && !is_batch(head)
}

/// Checks that the events are in a supported format.
pub(crate) fn check_format(head: &Head) -> Result<(), Problem> {
    let essence = media(head).split(';').next().unwrap_or_default().trim();
    let supported = [
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
    ];
    if supported
        .iter()
        .any(|media_type| essence.eq_ignore_ascii_case(media_type))
    {
        return Ok(());
    }
    let problem = Problem::new(
        Kind::MediaType,
        "the only supported format of events is JSON",
    );
    Err(problem.raw(
        "accept",
        b"[\"application/cloudevents+json\",\"application/cloudevents-batch+json\"]".to_vec(),
    ))
}

/// Reads the attributes in the header fields; `None` if they are not an event.
pub(crate) fn binary(head: &Head) -> Result<Option<Attributes>, Problem> {
    let all = [
        FieldName::CeId,
        FieldName::CeSource,
        FieldName::CeSpecVersion,
        FieldName::CeType,
    ];
    if !all.iter().all(|known| head.has(*known)) {
        return Ok(None);
    }
    if head.has(FieldName::CeDataContentType) {
        return Err(Problem::bad("write ce-datacontenttype as Content-Type"));
    }
    let mut attributes = Attributes::new();
    for (field, value) in head.fields() {
        let Some(name) = field.strip_prefix("ce-") else {
            continue;
        };
        let value = header_value(value)
            .ok_or_else(|| Problem::bad(format!("the value of {field} is malformed")))?;
        if attributes.insert(name.to_owned(), value).is_some() {
            return Err(Problem::bad(format!("{field} occurs twice")));
        }
    }
    check(&attributes)?;
    Ok(Some(attributes))
}

/// Decodes quotes and one level of percent escapes.
fn header_value(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let text = match text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    {
        None => text.to_owned(),
        Some(inner) => {
            let mut out = String::with_capacity(inner.len());
            let mut letters = inner.chars();
            while let Some(letter) = letters.next() {
                out.push(if letter == '\\' {
                    letters.next()?
                } else {
                    letter
                });
            }
            out
        }
    };
    String::from_utf8(decode(&text, false)?).ok()
}

/// Encodes a value for a header field.
pub(crate) fn header_text(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if matches!(byte, 0x21..=0x7e) && byte != b'"' && byte != b'%' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn check(attributes: &Attributes) -> Result<(), Problem> {
    for name in REQUIRED {
        if attributes.get(name).is_none_or(String::is_empty) {
            return Err(Problem::bad(format!(
                "the event needs the attribute {name}"
            )));
        }
    }
    if attributes
        .get("specversion")
        .is_some_and(|version| version != "1.0")
    {
        return Err(Problem::bad("the only supported specversion is 1.0"));
    }
    if attributes.get("time").is_some_and(|time| !is_time(time)) {
        return Err(Problem::bad("the attribute time is not an RFC 3339 time"));
    }
    if attributes.contains_key("data") {
        // In JSON, the payload has this name.
        return Err(Problem::bad("no attribute may have the name data"));
    }
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match attributes
        .keys()
        .find(|name| name.is_empty() || !name.bytes().all(letter))
    {
        Some(_) => Err(Problem::bad(
            "the name of an attribute must consist of lower-case letters and digits",
        )),
        None => Ok(()),
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| -> Option<u32> {
        let part = text.get(from..to)?;
        part.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| part.parse().ok())?
    };
    let sign = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
    let ranges = [
        (0, 4, 0, 9999),
        (5, 7, 1, 12),
        (8, 10, 1, 31),
        (11, 13, 0, 23),
        (14, 16, 0, 59),
        (17, 19, 0, 60),
    ];
    let numbers = ranges.iter().all(|(from, to, low, high)| {
        digits(*from, *to).is_some_and(|n| (*low..=*high).contains(&n))
    });
    let signs =
        sign(4, b"-") && sign(7, b"-") && sign(10, b"Tt") && sign(13, b":") && sign(16, b":");
    let rest = text.get(19..).unwrap_or_default();
    let zone = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
    };
    let offset = matches!(zone.as_bytes(), [b'+' | b'-', a, b, b':', c, d] if [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()));
    numbers && signs && (matches!(zone, "Z" | "z") || offset)
}

/// An event without its envelope.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) key: Vec<u8>,
    pub(crate) meta: Vec<u8>,
    pub(crate) value: std::borrow::Cow<'a, [u8]>,
}

/// Parses the envelope of one event.
pub(crate) fn read(text: &str) -> Result<Event<'_>, Problem> {
    let wrong = |_| Problem::bad("the event is not a JSON object");
    let members: Members<'_, &RawValue> = serde_json::from_str(text)
        .map_err(|error| Problem::bad(format!("the event is malformed: {error}")))?;
    let mut attributes = Attributes::new();
    let (mut data, mut coded) = (None, None);
    for (name, raw) in members.0 {
        match name.as_ref() {
            "data" => data = Some(raw),
            "data_base64" => coded = Some(raw),
            _ if raw.get() == "null" => {}
            _ => {
                // Numbers and booleans are stored as their text.
                let text = match raw.get().as_bytes().first() {
                    Some(b'"') => serde_json::from_str(raw.get()).map_err(wrong)?,
                    Some(b'{' | b'[') => {
                        return Err(Problem::bad(format!(
                            "the attribute {name} is not a simple value"
                        )));
                    }
                    _ => raw.get().to_owned(),
                };
                attributes.insert(name.into_owned(), text);
            }
        }
    }
    check(&attributes)?;
    let media_type = attributes.remove("datacontenttype");
    let is_json_like = matches!(
        declared(media_type.as_deref()),
        Declared::Nothing | Declared::Json | Declared::JsonLike
    );
    let value: std::borrow::Cow<'_, [u8]> = match (data, coded) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad(
                "an event must not have both data and data_base64",
            ));
        }
        (None, None) => (&[]).into(),
        (Some(raw), None) if !is_json_like && raw.get().starts_with('"') => {
            serde_json::from_str::<String>(raw.get())
                .map_err(wrong)?
                .into_bytes()
                .into()
        }
        (Some(raw), None) => raw.get().as_bytes().into(),
        (None, Some(raw)) => {
            let text: String = serde_json::from_str(raw.get()).map_err(wrong)?;
            base64::decode(&text)
                .ok_or_else(|| Problem::bad("data_base64 is not base64"))?
                .into()
        }
    };
    let mut meta = MetaWriter::default();
    if data.is_some() && is_json_like {
        meta.json();
        match media_type.as_deref() {
            Some(text) if declared(Some(text)) == Declared::JsonLike => {
                meta.field("content-type", text)?;
            }
            _ => {}
        }
    } else if !value.is_empty() || media_type.is_some() {
        typed(media_type.as_deref(), &value, &mut meta)?;
    }
    for (name, value) in &attributes {
        meta.field(&format!("ce-{name}"), value)?;
    }
    let key = attributes
        .get("partitionkey")
        .map(|key| key.clone().into_bytes());
    Ok(Event {
        key: key.unwrap_or_default(),
        meta: meta.build()?,
        value,
    })
}

/// The attributes of a record; generated if the record was not written as an event.
fn attributes(topic: &str, record: &Record<'_>, meta: &Meta<'_>) -> Attributes {
    let mut attributes: Attributes = meta
        .fields
        .iter()
        .filter_map(|(name, value)| {
            Some((name.strip_prefix("ce-")?.to_owned(), (*value).to_owned()))
        })
        .collect();
    let mut set_default = |name: &str, value: String| {
        attributes.entry(name.to_owned()).or_insert(value);
    };
    set_default("specversion", "1.0".to_owned());
    set_default("id", format!("{topic}/{}", record.offset));
    set_default("source", format!("/v1/topics/{topic}"));
    set_default(
        "type",
        format!("weir.{}", record.kind.name().to_ascii_lowercase()),
    );
    set_default("time", date::rfc3339(record.time_ms));
    set_default("sequence", format!("{:020}", record.offset.0));
    if let Some(key) = std::str::from_utf8(record.key)
        .ok()
        .filter(|key| !key.is_empty())
    {
        set_default("partitionkey", key.to_owned());
    }
    attributes
}

/// Writes a record as an event with its envelope.
pub(crate) fn write(topic: &str, record: &Record<'_>, out: &mut Vec<u8>) {
    let meta = Meta::of(record.meta, record.value);
    let mut object = Object::new(out);
    for (name, value) in attributes(topic, record, &meta) {
        object.text(&name, &value);
    }
    if record.kind == RecordKind::Put {
        let shape = shape(&meta, record.value);
        match (meta.media_type(), shape) {
            (Some(media_type), _) => object.text("datacontenttype", media_type),
            (None, Shape::Json) => object.text("datacontenttype", "application/json"),
            _ => &mut object,
        };
        match shape {
            Shape::Json => object.raw("data", record.value),
            Shape::Text => match std::str::from_utf8(record.value) {
                Ok(text) => object.text("data", text),
                Err(_) => object.base64("data_base64", record.value),
            },
            Shape::Bytes => object.base64("data_base64", record.value),
        };
    }
    object.end();
}

/// Adds the attributes of a record as header fields.
pub(crate) fn add_fields(topic: &str, record: &Record<'_>, reply: &mut Reply) {
    for (name, value) in attributes(topic, record, &Meta::fields(record.meta)) {
        reply.add(&format!("ce-{name}"), header_text(&value));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::http::head::parse;
    use crate::resources::bounded::MEMBERS_MAX;

    fn from_fields(fields: &str) -> Result<Option<Attributes>, Problem> {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        binary(&parse(text.as_bytes(), 20).unwrap().head)
    }

    const REQUIRED_FIELDS: &str = "ce-id: 1\r\nce-source: /a\r\nce-specversion: 1.0\r\nce-type: t";

    #[test]
    fn all_modes_store_equal_records() {
        let fields = format!(
            "{REQUIRED_FIELDS}\r\nce-time: 2026-01-02T03:04:05.6Z\r\nce-subject: \"Euro%20%E2%82%AC \\\"x\\\"\""
        );
        let attributes = from_fields(&fields).unwrap().unwrap();
        assert_eq!(attributes["subject"], "Euro € \"x\"");
        let mut meta = MetaWriter::default();
        meta.json();
        for (name, value) in &attributes {
            meta.field(&format!("ce-{name}"), value).unwrap();
        }
        let event = read(r#"{"specversion":"1.0","id":"1","source":"/a","type":"t","time":"2026-01-02T03:04:05.6Z","subject":"Euro € \"x\"","datacontenttype":"application/json","data":{"a" : 1.0}}"#).unwrap();
        assert_eq!(event.meta, meta.build().unwrap());
        assert_eq!(&*event.value, br#"{"a" : 1.0}"#);
        assert_eq!(
            header_value(header_text("Euro € %").as_bytes()).unwrap(),
            "Euro € %"
        );
    }

    #[test]
    fn invalid_events_are_refused() {
        assert_eq!(from_fields("ce-id: 1").unwrap(), None);
        for wrong in [
            "ce-datacontenttype: a",
            "ce-time: yesterday",
            "ce-a_b: c",
            "ce-data: a",
            "ce-x: %zz",
            "ce-x: %ff",
        ] {
            assert!(
                from_fields(&format!("{REQUIRED_FIELDS}\r\n{wrong}")).is_err(),
                "{wrong}"
            );
        }
        for wrong in [
            "[]",
            r#"{"specversion":"1.0","id":"1","source":"/a"}"#,
            r#"{"specversion":"0.3","id":"1","source":"/a","type":"t"}"#,
            r#"{"specversion":"1.0","id":"","source":"/a","type":"t"}"#,
            r#"{"specversion":"1.0","id":"1","source":"/a","type":"t","data":1,"data_base64":"AA=="}"#,
            r#"{"specversion":"1.0","id":"1","source":"/a","type":"t","data_base64":"A"}"#,
            r#"{"specversion":"1.0","id":"1","source":"/a","type":"t","x":{}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let mut many = String::from(r#"{"specversion":"1.0","id":"1","source":"/a","type":"t""#);
        for n in 0..MEMBERS_MAX {
            write!(many, r#","x{n}":null"#).unwrap();
        }
        many.push('}');
        let problem = read(&many).unwrap_err();
        assert!(
            problem.detail.contains("too many members"),
            "{}",
            problem.detail
        );
    }

    #[test]
    fn payloads_of_other_types_are_decoded() {
        let required = r#""specversion":"1.0","id":"1","source":"/a","type":"t""#;
        let text = format!(r#"{{{required},"datacontenttype":"text/plain","data":"a\nb"}}"#);
        assert_eq!(&*read(&text).unwrap().value, b"a\nb");
        let text = format!(r#"{{{required},"data_base64":"/wA=","partitionkey":"k"}}"#);
        let event = read(&text).unwrap();
        assert_eq!(
            (&*event.value, event.key.as_slice()),
            (&b"\xff\x00"[..], &b"k"[..])
        );
    }
}
