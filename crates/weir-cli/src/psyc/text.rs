//! `weir psyc text`: fills in templates.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use clap::error::ErrorKind;
use weir_psyc::{Escaped, Progress, Rendered, Template};

#[derive(Debug, Args)]
#[command(after_long_help = "\
The template is standard input. Prints the result and how it ended: `complete`,
or `no-substitution` when nothing was replaced.

Examples:
  printf 'Hello [_nick]!' | weir psyc text _nick=heron
  printf 'Hello <<_nick>>!' | weir psyc text -s 4 -o '<<' -e '>>' _nick=heron")]
pub(crate) struct TextArgs {
    /// Size of the output window in bytes, at least 1 [default: one for everything]
    #[arg(short, long, value_name = "SIZE", value_parser = clap::value_parser!(u32).range(1..))]
    size: Option<u32>,
    /// Opening bracket
    #[arg(short, long, value_name = "OPEN", default_value = "[")]
    open: OsString,
    /// Closing bracket
    #[arg(short = 'e', long, value_name = "CLOSE", default_value = "]")]
    close: OsString,
    /// Values as NAME=VALUE
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<OsString>,
}

/// Runs `weir psyc text`.
pub(crate) fn run(args: &TextArgs) -> anyhow::Result<ExitCode> {
    let mut values = Vec::with_capacity(args.values.len());
    for value in &args.values {
        let value = super::bytes(value);
        let equals = value.iter().position(|&byte| byte == b'=');
        let Some((name, value)) = equals.and_then(|at| value.split_at_checked(at)) else {
            return Err(usage("a value is written NAME=VALUE").into());
        };
        values.push((name, value.get(1..).unwrap_or_default()));
    }
    let input = super::input(None)?;
    let (open, close) = (super::bytes(&args.open), super::bytes(&args.close));
    let template = Template::new(&input).with_brackets(open, close);
    let template = template.ok_or_else(|| usage("a bracket must not be empty"))?;
    let lookup = |name: &[u8]| {
        let found = values.iter().rev().find(|(known, _)| *known == name);
        found.map(|&(_, value)| value)
    };
    let mut text = Vec::new();
    let how = match args.size.and_then(|size| usize::try_from(size).ok()) {
        None => template.render(lookup, &mut text),
        Some(size) => {
            let mut writer = template.writer(lookup);
            let mut window = vec![0; size.min(1 << 24)];
            loop {
                let progress = writer.write(&mut window);
                let (Progress::Incomplete(written) | Progress::Done(written, _)) = progress;
                text.extend_from_slice(window.get(..written).unwrap_or_default());
                if let Progress::Done(_, how) = progress {
                    break how;
                }
            }
        }
    };
    let how = match how {
        Rendered::Substituted => "complete",
        Rendered::NoSubstitution => "no-substitution",
    };
    super::print(&format!("text\t{}\n{how}\n", Escaped(&text)))?;
    Ok(ExitCode::SUCCESS)
}

/// A usage error.
pub(super) fn usage(message: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"))
}
