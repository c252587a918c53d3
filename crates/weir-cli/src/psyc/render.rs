//! `weir psyc render`: renders a packet from its description.

use std::process::ExitCode;

use clap::Args;
use weir_psyc::{
    Content, Escaped, Length, Modifier, Operator, Packet, Parts, Renderer, StateOperation, unescape,
};

use super::text::usage;

#[derive(Debug, Args)]
#[command(after_long_help = "\
The description is standard input, one item per line, with \\n, \\t and \\xHH for
single bytes:
  R<op><name>TAB<value>  routing modifier     S= or S?    state operation
  E<op><name>TAB<value>  entity modifier      M<method>   D<data>
  C<content>             a raw content instead of the last four
Prints `packet` and the bytes, or `error` and the cause.

Examples:
  printf 'R:_target\\tpsyc://h/~x\\nM_message\\nDhi\\n' | weir psyc render
  printf 'R:_source\\tpsyc://h/~y\\nM_notice\\n' | weir psyc render --threshold 0")]
pub(crate) struct RenderArgs {
    /// Longest value without a length, in bytes [default: 9]
    #[arg(long, value_name = "BYTES")]
    threshold: Option<u64>,
}

type Line = (Operator, Vec<u8>, Vec<u8>);

/// A parsed description.
#[derive(Default)]
struct Description {
    routing: Vec<Line>,
    entity: Vec<Line>,
    state: Option<StateOperation>,
    method: Vec<u8>,
    data: Vec<u8>,
    raw: Option<Vec<u8>>,
}

/// Runs `weir psyc render`.
pub(crate) fn run(args: &RenderArgs) -> anyhow::Result<ExitCode> {
    let input = super::input(None)?;
    let mut description = Description::default();
    for (at, line) in input.split(|&byte| byte == b'\n').enumerate() {
        if !line.is_empty() {
            let read = unescape(line).and_then(|item| description.read(&item));
            read.ok_or_else(|| usage(&format!("line {} is not an item of a packet", at + 1)))?;
        }
    }
    let renderer = args
        .threshold
        .map_or(Renderer::new(), Renderer::with_threshold);
    let mut out = Vec::new();
    let routing = borrowed(&description.routing);
    let entity = borrowed(&description.entity);
    let content = match &description.raw {
        Some(raw) => Content::Raw(raw),
        None => Content::Parts(Parts {
            state: description.state,
            entity: &entity,
            method: &description.method,
            data: &description.data,
        }),
    };
    let packet = Packet {
        routing: &routing,
        content,
        length: Length::Auto,
    };
    match renderer.append(&packet, &mut out) {
        Ok(()) => {
            super::print(&format!("packet\t{}\n", Escaped(&out)))?;
            Ok(super::exit(true))
        }
        Err(error) => {
            super::print(&format!("error\t{error:?}\n"))?;
            Ok(super::exit(false))
        }
    }
}

fn borrowed(lines: &[Line]) -> Vec<Modifier<'_>> {
    lines
        .iter()
        .map(|(operator, name, value)| Modifier::new(*operator, name, value))
        .collect()
}

impl Description {
    fn read(&mut self, item: &[u8]) -> Option<()> {
        let (&kind, rest) = item.split_first()?;
        match kind {
            b'R' => self.routing.push(line(rest)?),
            b'E' => self.entity.push(line(rest)?),
            b'S' if rest == b"=" => self.state = Some(StateOperation::Reset),
            b'S' if rest == b"?" => self.state = Some(StateOperation::Resync),
            b'M' => self.method = rest.to_vec(),
            b'D' => self.data = rest.to_vec(),
            b'C' => self.raw = Some(rest.to_vec()),
            _ => return None,
        }
        Some(())
    }
}

/// Parses `<op><name>TAB<value>`.
fn line(item: &[u8]) -> Option<Line> {
    let (&operator, rest) = item.split_first()?;
    let tab = rest.iter().position(|&byte| byte == b'\t')?;
    let (name, value) = rest.split_at_checked(tab)?;
    Some((
        Operator::from_byte(operator)?,
        name.to_vec(),
        value.get(1..)?.to_vec(),
    ))
}
