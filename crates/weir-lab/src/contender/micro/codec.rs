//! Operations of the codec, each on 1,000 different inputs, and the floor: a copy of the bytes that
//! the operation reads, or writes.

use weir_psyc::{Dict, List, Method, Mode, Modifier, Packet, ParseStep, Parser, Renderer, Uniform};

use super::{Timer, Work};
use crate::contender::wire::touch;
use crate::contender::{ContenderError, parameter};
use crate::protocol::Fields;
use crate::rng::SplitMix64;

/// Number of inputs.
pub const INPUTS: usize = 1_000;

const WORDS: [&str; 8] = [
    "north", "sluice", "gauge", "heron", "towpath", "mill", "otter", "level",
];

/// The packets of `render` and `parse`.
const ROUTING: [Modifier<'static>; 2] = [
    Modifier::set(b"_source", b"psyc://lock.example/~heron"),
    Modifier::set(b"_target", b"psyc://mill.example/~otter"),
];

/// An operation on each input.
struct Each<F> {
    inputs: Vec<Vec<u8>>,
    out: Vec<u8>,
    operation: F,
}

impl<F: FnMut(&[u8], &mut Vec<u8>) -> Option<u64>> Work for Each<F> {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let (inputs, out, operation) = (&self.inputs, &mut self.out, &mut self.operation);
        let sum = timer.time(|| {
            let mut sum = 0u64;
            for input in inputs {
                out.clear();
                sum = sum.wrapping_add(operation(input, out)?);
            }
            Some(sum)
        });
        sum.ok_or_else(|| ContenderError::Refused("an input of the experiment".to_owned()))
    }
}

fn boxed<F>(inputs: Vec<Vec<u8>>, operation: F) -> Box<dyn Work>
where
    F: FnMut(&[u8], &mut Vec<u8>) -> Option<u64> + 'static,
{
    Box::new(Each {
        inputs,
        out: Vec::with_capacity(1 << 12),
        operation,
    })
}

/// The operation `op`.
pub fn operation(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let op: String = parameter(fields, "op")?;
    let inputs = inputs(&op).ok_or(ContenderError::Parameter("op"))?;
    Ok(match op.as_str() {
        "parse" => {
            let mut parser = Parser::new(Mode::Full);
            boxed(inputs, move |input, _| {
                let sum = parse(&mut parser, input);
                parser.release();
                sum
            })
        }
        "render" => boxed(inputs, |input, out| {
            render(input, out)?;
            Some(touch(out))
        }),
        "list" => boxed(inputs, |input, _| {
            List::new(input).elements().try_fold(0u64, |sum, element| {
                Some(sum.wrapping_add(touch(element.ok()?.value)))
            })
        }),
        "dict" => boxed(inputs, |input, _| {
            Dict::new(input).entries().try_fold(0u64, |sum, entry| {
                let (key, element) = entry.ok()?;
                let sum = sum.wrapping_add(touch(key.key));
                Some(sum.wrapping_add(touch(element.value)))
            })
        }),
        "uniform" => boxed(inputs, |input, _| {
            let uniform = Uniform::parse(input).ok()?;
            let port = uniform.port_number().map_or(1, u64::from);
            let sum = port.wrapping_add(touch(uniform.host()));
            Some(sum.wrapping_add(touch(uniform.nick())))
        }),
        "method" => boxed(inputs, |input, _| {
            let method = Method::from_name(input)?;
            Some(u64::from(method.number) + u64::from(method.flags().bits()))
        }),
        _ => boxed(inputs, |input, out| {
            let template =
                weir_psyc::Template::new(b"[_nick] has entered [_context] from [_source]");
            let value = |name: &[u8]| match name {
                b"_nick" => Some(input),
                b"_context" => Some(b"the weir".as_slice()),
                _ => None,
            };
            template.render(value, out);
            Some(touch(out))
        }),
    })
}

/// The floor: a copy of each input, or of each output of `render`.
pub fn copy(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let op: String = parameter(fields, "op")?;
    let mut inputs = inputs(&op).ok_or(ContenderError::Parameter("op"))?;
    if op == "render" {
        for input in &mut inputs {
            let mut out = Vec::new();
            render(input, &mut out).ok_or(ContenderError::Parameter("op"))?;
            *input = out;
        }
    }
    Ok(boxed(inputs, |input, out| {
        out.extend_from_slice(input);
        Some(touch(out))
    }))
}

#[inline]
fn parse(parser: &mut Parser, packet: &[u8]) -> Option<u64> {
    let mut sum = 0u64;
    loop {
        match parser.step(packet) {
            ParseStep::Routing(found) | ParseStep::Entity(found) => {
                sum = sum
                    .wrapping_add(touch(found.name))
                    .wrapping_add(touch(found.value));
            }
            ParseStep::Body { method, data, .. } => {
                sum = sum.wrapping_add(touch(method)).wrapping_add(touch(data));
            }
            ParseStep::Complete => return Some(sum),
            _ => return None,
        }
    }
}

/// Renders a message with the text `data`.
#[inline]
fn render(data: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let packet = Packet::new(&ROUTING, &[], b"_message_public", data);
    Renderer::new().append(&packet, out).ok()
}

/// Makes an input from random numbers and words.
type Make = fn(&mut SplitMix64, &mut dyn FnMut(&mut SplitMix64) -> &'static str) -> String;

/// The inputs of `op`; `None` if there is no such operation.
fn inputs(op: &str) -> Option<Vec<Vec<u8>>> {
    let mut rng = SplitMix64::derive(1, op);
    let mut word = |rng: &mut SplitMix64| WORDS[rng.below(WORDS.len())];
    let make: Make = match op {
        "parse" | "render" => |rng, word| {
            let words: Vec<&str> = (0..3 + rng.below(12)).map(|_| word(rng)).collect();
            words.join(" ")
        },
        "list" => |rng, word| {
            let elements: Vec<String> = (0..8).map(|_| format!("| {}", word(rng))).collect();
            format!("_nick{}", elements.concat())
        },
        "dict" => |rng, word| {
            let entry = |n: usize| format!("{{{}{n}}} {}", word(rng), word(rng));
            let entries: Vec<String> = (0..8).map(entry).collect();
            format!("_nick{}", entries.concat())
        },
        "uniform" => |rng, word| {
            let port = match rng.below(3) {
                0 => format!(":{}", 1_024 + rng.below(50_000)),
                _ => String::new(),
            };
            format!(
                "psyc://{}.example{port}/~{}{}",
                word(rng),
                word(rng),
                rng.below(100)
            )
        },
        "method" => |rng, word| {
            let known = [
                "_notice_context_enter",
                "_message",
                "_request",
                "_status",
                "_echo",
            ];
            format!("{}_{}", known[rng.below(known.len())], word(rng))
        },
        "template" => |rng, word| format!("{}{}", word(rng), rng.below(1_000)),
        _ => return None,
    };
    let texts = (0..INPUTS).map(|_| make(&mut rng, &mut word).into_bytes());
    let mut inputs: Vec<Vec<u8>> = texts.collect();
    if op == "parse" {
        for input in &mut inputs {
            let mut packet = Vec::new();
            render(input, &mut packet)?;
            *input = packet;
        }
    }
    Some(inputs)
}
