//! Binary references: the JSON packet in CBOR (RFC 8949), and the PSYC packet in protobuf.
//!
//! CBOR is read token by token, without a tree and without copies. The protobuf message has the parts
//! of a packet; its fields are slices of the input.

use bytes::Bytes;
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use prost::Message as _;
use serde_json::Value;
use weir_psyc::{Mode, ParseStep, Parser};

use crate::Part;

/// A modifier.
#[derive(Clone, PartialEq, prost::Message)]
struct Modifier {
    #[prost(uint32, tag = "1")]
    operator: u32,
    #[prost(bytes = "bytes", tag = "2")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    value: Bytes,
}

/// A packet.
#[derive(Clone, PartialEq, prost::Message)]
struct Packet {
    #[prost(message, repeated, tag = "1")]
    routing: Vec<Modifier>,
    #[prost(message, repeated, tag = "2")]
    entity: Vec<Modifier>,
    #[prost(bytes = "bytes", tag = "3")]
    method: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    data: Bytes,
}

/// The PSYC packet in protobuf.
pub(crate) fn to_protobuf(packet: &[u8]) -> Option<Vec<u8>> {
    let copy = Bytes::copy_from_slice;
    let modifier = |found: weir_psyc::Variable<'_>| Modifier {
        operator: found.operator.byte().into(),
        name: copy(found.name),
        value: copy(found.value),
    };
    let mut message = Packet::default();
    let mut parser = Parser::new(Mode::Full);
    loop {
        match parser.step(packet) {
            ParseStep::Routing(found) => message.routing.push(modifier(found)),
            ParseStep::Entity(found) => message.entity.push(modifier(found)),
            ParseStep::Body { method, data, .. } => {
                (message.method, message.data) = (copy(method), copy(data));
            }
            ParseStep::Complete => return Some(message.encode_to_vec()),
            _ => return None,
        }
    }
}

/// Parses a message of protobuf. The kinds are those of PSYC: `m` method, `d` data.
pub(crate) fn protobuf(packet: Bytes, each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
    let message = Packet::decode(packet).ok()?;
    let mut sum = 0_u64;
    for found in message.routing.iter().chain(&message.entity) {
        let operator = u8::try_from(found.operator).ok()?;
        let part = Part::Variable(operator, &found.name, &found.value);
        sum = sum.wrapping_add(each(part));
    }
    if !message.method.is_empty() {
        sum = sum.wrapping_add(each(Part::One(b'm', &message.method)));
    }
    if !message.data.is_empty() {
        sum = sum.wrapping_add(each(Part::One(b'd', &message.data)));
    }
    Some(sum)
}

/// The value in CBOR.
pub(crate) fn to_cbor(value: &Value) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(Vec::new());
    write(value, &mut encoder)?;
    Some(encoder.into_writer())
}

fn write(value: &Value, to: &mut Encoder<Vec<u8>>) -> Option<()> {
    match value {
        Value::Null => to.null().ok()?,
        Value::Bool(flag) => to.bool(*flag).ok()?,
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => to.i64(integer).ok()?,
            (None, float) => to.f64(float?).ok()?,
        },
        Value::String(text) => to.str(text).ok()?,
        Value::Array(items) => {
            to.array(items.len() as u64).ok()?;
            items.iter().try_for_each(|item| write(item, to))?;
            to
        }
        Value::Object(members) => {
            to.map(members.len() as u64).ok()?;
            for (key, value) in members {
                to.str(key).ok()?;
                write(value, to)?;
            }
            to
        }
    };
    Some(())
}

/// Reads a value of CBOR. The kinds are those of JSON.
pub(crate) fn cbor(packet: &[u8], each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
    read(&mut Decoder::new(packet), each)
}

fn read(from: &mut Decoder<'_>, each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
    let mut sum = 0_u64;
    match from.datatype().ok()? {
        Type::Map => {
            for _ in 0..from.map().ok()?? {
                sum = sum.wrapping_add(each(Part::One(b'k', from.str().ok()?.as_bytes())));
                sum = sum.wrapping_add(read(from, each)?);
            }
        }
        Type::Array => {
            for _ in 0..from.array().ok()?? {
                sum = sum.wrapping_add(read(from, each)?);
            }
        }
        Type::String => sum = each(Part::One(b's', from.str().ok()?.as_bytes())),
        Type::Bool if from.bool().ok()? => sum = each(Part::One(b'n', b"true")),
        Type::Bool => sum = each(Part::One(b'n', b"false")),
        Type::Null => {
            from.null().ok()?;
            sum = each(Part::One(b'n', b"null"));
        }
        Type::F16 | Type::F32 | Type::F64 => {
            let text = serde_json::Number::from_f64(from.f64().ok()?)?.to_string();
            sum = each(Part::One(b'n', text.as_bytes()));
        }
        _ => sum = each(Part::One(b'n', from.i64().ok()?.to_string().as_bytes())),
    }
    Some(sum)
}
