//! Operations of the codec, each on 1,000 different inputs, and the floor: a copy of the bytes that
//! the operation reads, or writes.
//!
//! The answer of the floor is what the operation must find, computed without the codec. So the check
//! compares every result of the codec with the expected one.

use weir_psyc::{
    Dict, List, Method, Mode, Modifier, Packet, ParseStep, Parser, Renderer, Template, Uniform,
};

use super::{Timer, Work};
use crate::contender::psyc::{PacketPart, scan};
use crate::contender::wire::touch;
use crate::contender::{ContenderError, parameter};
use crate::protocol::Fields;
use crate::rng::{SplitMix64, fnv1a64, fnv1a64_more};

/// Number of inputs.
pub const INPUTS: usize = 1_000;

const WORDS: [&str; 8] = [
    "north", "sluice", "gauge", "heron", "towpath", "mill", "otter", "level",
];

/// The addresses and the method of the packets of `render` and `parse`.
const SOURCE: &str = "psyc://lock.example/~heron";
const TARGET: &str = "psyc://mill.example/~otter";
const METHOD: &str = "_message_public";

/// Receives what an operation finds or writes.
trait Results {
    fn bytes(&mut self, bytes: &[u8]);
    fn number(&mut self, number: u64);
}

/// The touch, summed up in the timed part.
struct Touched(u64);

impl Results for Touched {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(touch(bytes));
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.0 = self.0.wrapping_add(number);
    }
}

/// A hash of all results in order, for the check.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(fnv1a64(b""))
    }
}

impl Results for Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0 = fnv1a64_more(self.0, bytes);
    }

    fn number(&mut self, number: u64) {
        self.0 = fnv1a64_more(self.0, &number.to_le_bytes());
    }
}

trait Operation {
    /// Executes the operation on `input`. Returns `None` if it fails.
    fn run(&mut self, input: &[u8], out: &mut Vec<u8>, results: &mut impl Results) -> Option<()>;
}

/// An operation and its inputs.
struct AllInputs<O> {
    inputs: Vec<Vec<u8>>,
    out: Vec<u8>,
    operation: O,
}

impl<O: Operation> AllInputs<O> {
    fn new(inputs: Vec<Vec<u8>>, operation: O) -> AllInputs<O> {
        AllInputs {
            inputs,
            out: Vec::with_capacity(1 << 12),
            operation,
        }
    }

    #[inline]
    fn run(&mut self, results: &mut impl Results) -> Result<(), ContenderError> {
        for input in &self.inputs {
            self.out.clear();
            let done = self.operation.run(input, &mut self.out, results);
            done.ok_or_else(|| ContenderError::Refused("an input of the experiment".to_owned()))?;
        }
        Ok(())
    }
}

impl<O: Operation> Work for AllInputs<O> {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let mut results = Touched(0);
        timer.time(|| self.run(&mut results))?;
        Ok(results.0)
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        let mut results = Hash::new();
        self.run(&mut results)?;
        Ok(results.0)
    }
}

struct Parse(Parser);

impl Operation for Parse {
    #[inline]
    fn run(&mut self, input: &[u8], _: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        loop {
            match self.0.step(input) {
                ParseStep::Routing(found) | ParseStep::Entity(found) => {
                    results.bytes(found.name);
                    results.bytes(found.value);
                }
                ParseStep::Body { method, data, .. } => {
                    results.bytes(method);
                    results.bytes(data);
                }
                ParseStep::Complete => break,
                _ => return None,
            }
        }
        self.0.release();
        Some(())
    }
}

/// Renders a message with the text `input`.
struct Render;

impl Operation for Render {
    #[inline]
    fn run(&mut self, input: &[u8], out: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        const ROUTING: [Modifier<'static>; 2] = [
            Modifier::set(b"_source", SOURCE.as_bytes()),
            Modifier::set(b"_target", TARGET.as_bytes()),
        ];
        let packet = Packet::new(&ROUTING, &[], METHOD.as_bytes(), input);
        Renderer::new().append(&packet, out).ok()?;
        results.bytes(out);
        Some(())
    }
}

struct Elements;

impl Operation for Elements {
    #[inline]
    fn run(&mut self, input: &[u8], _: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        for element in List::new(input).elements() {
            results.bytes(element.ok()?.value);
        }
        Some(())
    }
}

struct Entries;

impl Operation for Entries {
    #[inline]
    fn run(&mut self, input: &[u8], _: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        for entry in Dict::new(input).entries() {
            let (key, element) = entry.ok()?;
            results.bytes(key.key);
            results.bytes(element.value);
        }
        Some(())
    }
}

struct Address;

impl Operation for Address {
    #[inline]
    fn run(&mut self, input: &[u8], _: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        let uniform = Uniform::parse(input).ok()?;
        if let Some(port) = uniform.port_number() {
            results.number(u64::from(port));
        }
        results.bytes(uniform.host());
        results.bytes(uniform.nick());
        Some(())
    }
}

struct KnownMethod;

impl Operation for KnownMethod {
    #[inline]
    fn run(&mut self, input: &[u8], _: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        results.bytes(Method::from_name(input)?.name.as_bytes());
        Some(())
    }
}

struct Substitute;

impl Operation for Substitute {
    #[inline]
    fn run(&mut self, input: &[u8], out: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        let value = |name: &[u8]| match name {
            b"_nick" => Some(input),
            b"_context" => Some(b"the weir".as_slice()),
            _ => None,
        };
        let template = Template::new(b"[_nick] has entered [_context] from [_source]");
        template.render(value, out);
        results.bytes(out);
        Some(())
    }
}

/// The operation `op`.
pub fn operation(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let op: String = parameter(fields, "op")?;
    let inputs = inputs(&op).ok_or(ContenderError::Parameter("op"))?;
    Ok(match op.as_str() {
        "parse" => Box::new(AllInputs::new(inputs, Parse(Parser::new(Mode::Full)))),
        "render" => Box::new(AllInputs::new(inputs, Render)),
        "list" => Box::new(AllInputs::new(inputs, Elements)),
        "dict" => Box::new(AllInputs::new(inputs, Entries)),
        "uniform" => Box::new(AllInputs::new(inputs, Address)),
        "method" => Box::new(AllInputs::new(inputs, KnownMethod)),
        _ => Box::new(AllInputs::new(inputs, Substitute)),
    })
}

struct PlainCopy;

impl Operation for PlainCopy {
    #[inline]
    fn run(&mut self, input: &[u8], out: &mut Vec<u8>, results: &mut impl Results) -> Option<()> {
        out.extend_from_slice(input);
        results.bytes(out);
        Some(())
    }
}

/// The floor, and the hash of the results that the operation must have.
struct Floor {
    copy: AllInputs<PlainCopy>,
    expected: u64,
}

impl Work for Floor {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        self.copy.pass(timer)
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        Ok(self.expected)
    }
}

/// The floor: a copy of each input, or of each output of `render`.
pub fn copy(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let op: String = parameter(fields, "op")?;
    let mut inputs = inputs(&op).ok_or(ContenderError::Parameter("op"))?;
    let mut results = Hash::new();
    for input in &inputs {
        expect(&op, input, &mut results).ok_or(ContenderError::Parameter("op"))?;
    }
    if op == "render" {
        for input in &mut inputs {
            *input = message(input);
        }
    }
    Ok(Box::new(Floor {
        copy: AllInputs::new(inputs, PlainCopy),
        expected: results.0,
    }))
}

/// Finds the results of `op` on `input` without the codec.
fn expect(op: &str, input: &[u8], results: &mut Hash) -> Option<()> {
    let text = std::str::from_utf8(input).ok()?;
    match op {
        "parse" => scan(input, &mut |part| match part {
            PacketPart::Variable { name, value, .. } => {
                results.bytes(name);
                results.bytes(value);
            }
            PacketPart::Method(bytes) | PacketPart::Data(bytes) => results.bytes(bytes),
        })
        .ok()?,
        "render" => results.bytes(&message(input)),
        "list" => {
            let elements = text.split("| ").skip(1);
            elements.for_each(|element| results.bytes(element.as_bytes()));
        }
        "dict" => {
            for entry in text.split('{').skip(1) {
                let (key, value) = entry.split_once("} ")?;
                results.bytes(key.as_bytes());
                results.bytes(value.as_bytes());
            }
        }
        "uniform" => {
            let (mut host, nick) = text.strip_prefix("psyc://")?.split_once("/~")?;
            if let Some((before, port)) = host.split_once(':') {
                results.number(port.parse().ok()?);
                host = before;
            }
            results.bytes(host.as_bytes());
            results.bytes(nick.as_bytes());
        }
        "method" => results.bytes(text.rsplit_once('_')?.0.as_bytes()),
        _ => {
            let text = format!("{text} has entered the weir from [_source]");
            results.bytes(text.as_bytes());
        }
    }
    Some(())
}

/// The packet of a message with the text `text`, which has more than 9 bytes, so that the codec
/// writes the length of the content.
fn message(text: &[u8]) -> Vec<u8> {
    let length = METHOD.len() + text.len() + 2;
    let start = format!(":_source\t{SOURCE}\n:_target\t{TARGET}\n{length}\n{METHOD}\n");
    [start.as_bytes(), text, b"\n|\n"].concat()
}

/// Creates an input from random numbers and words.
type Create = fn(&mut SplitMix64, &mut dyn FnMut(&mut SplitMix64) -> &'static str) -> String;

/// The inputs of `op`; `None` if there is no such operation.
fn inputs(op: &str) -> Option<Vec<Vec<u8>>> {
    let mut rng = SplitMix64::derive(1, op);
    let mut word = |rng: &mut SplitMix64| WORDS[rng.below(WORDS.len())];
    let create: Create = match op {
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
    let texts = (0..INPUTS).map(|_| create(&mut rng, &mut word).into_bytes());
    let mut inputs: Vec<Vec<u8>> = texts.collect();
    if op == "parse" {
        for input in &mut inputs {
            *input = message(input);
        }
    }
    Some(inputs)
}
