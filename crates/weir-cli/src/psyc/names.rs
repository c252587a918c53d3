//! `weir psyc match|inherits|vartype|routingvar|islist|method|packetid`: properties of names.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use weir_psyc::{
    Escaped, InvalidKeyword, Method, PacketId, Renderer, RoutingVariable, VarType, is_list, keyword,
};

#[derive(Debug, Args)]
pub(crate) struct KeywordPair {
    /// The shorter keyword
    #[arg(allow_hyphen_values = true)]
    short: OsString,
    /// The longer keyword
    #[arg(allow_hyphen_values = true)]
    long: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The name
    #[arg(allow_hyphen_values = true)]
    name: OsString,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir psyc packetid '' psyc://a.example/~x psyc://b.example/~y 1337 42
  weir psyc packetid - - psyc://b.example/~y 1 ~")]
pub(crate) struct PacketIdArgs {
    /// Context, source, target, counter and fragment; empty, `-` or `~` for an absent one
    #[arg(num_args = 5, required = true, allow_hyphen_values = true)]
    #[arg(value_names = ["CONTEXT", "SOURCE", "TARGET", "COUNTER", "FRAGMENT"])]
    parts: Vec<OsString>,
}

/// Runs `weir psyc match`.
pub(crate) fn matches(pair: &KeywordPair) -> anyhow::Result<ExitCode> {
    compare(pair, keyword::matches)
}

/// Runs `weir psyc inherits`.
pub(crate) fn inherits(pair: &KeywordPair) -> anyhow::Result<ExitCode> {
    compare(pair, keyword::inherits)
}

type KeywordTest = fn(&[u8], &[u8]) -> Result<bool, InvalidKeyword>;

fn compare(pair: &KeywordPair, test: KeywordTest) -> anyhow::Result<ExitCode> {
    let answer = test(super::bytes(&pair.short), super::bytes(&pair.long));
    super::print(match answer {
        Ok(true) => "0\n",
        Ok(false) => "1\n",
        Err(InvalidKeyword) => "-1\n",
    })?;
    Ok(super::exit(answer.is_ok()))
}

fn number(name: &Name, lookup: impl Fn(&[u8]) -> u8) -> anyhow::Result<ExitCode> {
    super::print(&format!("{}\n", lookup(super::bytes(&name.name))))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir psyc vartype`.
pub(crate) fn vartype(name: &Name) -> anyhow::Result<ExitCode> {
    number(name, |name| {
        VarType::from_name(name).map_or(0, VarType::number)
    })
}

/// Runs `weir psyc routingvar`.
pub(crate) fn routingvar(name: &Name) -> anyhow::Result<ExitCode> {
    number(name, |name| {
        RoutingVariable::from_name(name).map_or(0, RoutingVariable::number)
    })
}

/// Runs `weir psyc islist`.
pub(crate) fn islist(name: &Name) -> anyhow::Result<ExitCode> {
    number(name, |name| u8::from(is_list(name)))
}

/// Runs `weir psyc method`.
pub(crate) fn method(name: &Name) -> anyhow::Result<ExitCode> {
    let (code, family, flags) = Method::from_name(super::bytes(&name.name))
        .map_or((0, 0, 0), |method| {
            (method.number, method.family.number(), method.flags().bits())
        });
    super::print(&format!("{code}\t{family}\t{flags}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir psyc packetid`.
pub(crate) fn packetid(args: &PacketIdArgs) -> anyhow::Result<ExitCode> {
    let part = |at: usize| match args.parts.get(at).map(|part| super::bytes(part)) {
        None | Some(b"-" | b"~") => &b""[..],
        Some(part) => part,
    };
    let id = PacketId {
        context: part(0),
        source: part(1),
        target: part(2),
        counter: part(3),
        fragment: part(4),
    };
    let mut out = Vec::new();
    Renderer::append_packet_id(&id, &mut out)?;
    super::print(&format!("id\t{}\n", Escaped(&out)))?;
    Ok(ExitCode::SUCCESS)
}
