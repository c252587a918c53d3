//! `weir program`: modules that judge the writes to a topic.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use weir::program::WasmtimeHost;
use weir::program::script::{self, Manner};
use weir::{CodeHash, ErrorCode, Operation, ProgramHost, TopicOptions};

use crate::bytes;
use crate::cli::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::report::{self, Because, Failure};
use crate::topic::{self, options};

#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a module against every rule, and say what it needs
    #[command(after_long_help = "Examples:\n  \
        weir program check balance.wasm\n  \
        weir program check balance.wasm -o json")]
    Check {
        /// The module, a .wasm file
        file: PathBuf,
    },
    /// Run a script: what writes lead to, without any store
    #[command(after_long_help = "\
A script names programs by the name of their file without .wasm; they are looked for beside FILE.
With --write the outcomes go into the script, to be read before they are kept.

Examples:
  weir program test balance.wasm balance.txt
  weir program test balance.wasm balance.txt --write")]
    Test {
        /// The module, a .wasm file
        file: PathBuf,
        /// The script
        script: PathBuf,
        /// Write what happened into the script
        #[arg(long)]
        write: bool,
    },
    /// Make a topic with a program
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm\n  \
        weir program deploy names unique.wasm state=none fuel-max=100000")]
    Deploy {
        /// Name of the topic
        topic: String,
        /// The module, a .wasm file
        file: PathBuf,
        /// Options of the topic
        #[arg(value_name = "OPTION=VALUE")]
        options: Vec<String>,
        /// Arguments of the program; \xff, {u32:5}, {x*9} as in scripts
        #[arg(long, default_value = "", hide_default_value = true)]
        args: String,
    },
    /// Put another program in the place of a topic's program
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm && weir program replace bank balance2.wasm\n  \
        weir program replace bank balance.wasm -o json")]
    Replace {
        /// Name of the topic
        topic: String,
        /// The module, a .wasm file
        file: PathBuf,
        /// Arguments of the program; \xff, {u32:5}, {x*9} as in scripts
        #[arg(long, default_value = "", hide_default_value = true)]
        args: String,
        /// Only if the topic runs the code with this SHA-256
        #[arg(long, value_name = "HASH")]
        expect: Option<String>,
    },
    /// Describe the program of a topic
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm && weir program show bank\n  \
        weir program show bank -o json")]
    Show {
        /// Name of the topic
        topic: String,
    },
}

const CHECKED: &[Field] = &[
    field("bytes", "bytes", "of the module"),
    field("functions", "count", "with a body"),
    field("memory", "bytes", "of memory at most"),
    field("init", "bool", "whether it runs when its topic is created"),
    field(
        "upgrade",
        "bool",
        "whether it runs when it replaces another",
    ),
    field("imports", "text", "functions of the store that it calls"),
    field("sha256", "text", "identity of the module"),
];

const SHOWN: &[Field] = &[
    field("topic", "text", "name of the topic"),
    field("state", "text", "what the program keeps: none, kv, memory"),
    field("entries", "count", "of its state"),
    field("bytes", "bytes", "of its state"),
    field("args", "text", "arguments, as in scripts"),
    field("sha256", "text", "identity of its module"),
];

/// Carries out `weir program`.
pub(crate) fn run(caller: &Caller, args: &ProgramArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Check { file } => check(caller, file),
        Verb::Test {
            file,
            script,
            write,
        } => test(caller, file, script, *write),
        Verb::Deploy {
            topic,
            file,
            options,
            args,
        } => {
            let options = &options::parse(options, &TopicOptions::default())?;
            let (code, args) = (&read(file)?, &argument(args)?);
            let weir = place::open(caller, Access::Write)?;
            let create = Operation::CreateProgram {
                options,
                code,
                args,
            };
            topic::write(caller, &weir, topic, create)
        }
        Verb::Replace {
            topic,
            file,
            args,
            expect,
        } => {
            let (code, args) = (&read(file)?, &argument(args)?);
            let expected = expect.as_deref().map(hash).transpose()?;
            let weir = place::open(caller, Access::Read)?;
            let replace = Operation::Replace {
                expected,
                code,
                args,
            };
            topic::write(caller, &weir, topic, replace)
        }
        Verb::Show { topic } => show(caller, topic),
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).failed(|| format!("cannot read {}", file.display()))
}

fn argument(words: &str) -> anyhow::Result<Vec<u8>> {
    script::parse(words).ok_or_else(|| {
        let what = format!("cannot use the arguments {words}");
        Failure::new(ErrorCode::BadOption, what).into()
    })
}

fn hash(text: &str) -> anyhow::Result<CodeHash> {
    let bytes = bytes::from_hex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.map(CodeHash).ok_or_else(|| {
        let what = format!("{text} is no SHA-256");
        let failure = Failure::new(ErrorCode::BadOption, what);
        failure.because("it takes 64 hexadecimal digits").into()
    })
}

fn check(caller: &Caller, file: &Path) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, CHECKED)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let code = read(file)?;
    let what = || format!("{} is no program", file.display());
    let bad = |why: String| Failure::new(ErrorCode::BadProgram, what()).because(why);
    let report = weir::program::inspect(&code).map_err(bad)?;
    // The rest of the rules: it compiles, and speaks this version.
    let host = WasmtimeHost::default();
    let widest = weir::program::widest();
    host.admit(&code, &widest)
        .map_err(|refusal| match refusal {
            weir::program::Refusal::Bad(why) | weir::program::Refusal::Unable(why) => bad(why),
        })?;
    out.row(&[
        Cell::Size(code.len() as u64),
        Cell::Count(u64::from(report.functions)),
        Cell::Size(report.memory_bytes_max),
        Cell::Flag(report.facts.has_init),
        Cell::Flag(report.facts.has_upgrade),
        Cell::Text(report.imports.join(" ").into()),
        Cell::Text(host.hash(&code).to_string().into()),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn test(caller: &Caller, file: &Path, path: &Path, write: bool) -> anyhow::Result<ExitCode> {
    let code = read(file)?;
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let program = |name: &str| {
        if file.file_stem().is_some_and(|stem| stem == name) {
            return Some(code.clone());
        }
        std::fs::read(file.with_file_name(format!("{name}.wasm"))).ok()
    };
    let ran = script::run(&text, &host, Manner::default(), &program);
    let (blocks, _) = ran.map_err(|error| {
        let what = format!("cannot run {}", path.display());
        Failure::new(ErrorCode::BadRequest, what).because(error)
    })?;
    if write {
        let text = script::rewritten(&text, &blocks);
        std::fs::write(path, text).failed(|| format!("cannot write {}", path.display()))?;
        report::note(caller.quiet, &format!("wrote {} blocks", blocks.len()));
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = blocks.iter().filter(|block| block.actual != block.expected);
    let mut failed = 0;
    for block in wrong {
        failed += 1;
        report::note(false, &format!("{} line {}:", path.display(), block.line));
        for line in difference(&block.expected, &block.actual) {
            report::note(false, &line);
        }
    }
    if failed > 0 {
        let count = blocks.len();
        report::note(false, &format!("{failed} of {count} blocks went otherwise"));
        return Ok(ExitCode::from(crate::verdict::NOT_VALID));
    }
    report::note(
        caller.quiet,
        &format!("{} blocks as expected", blocks.len()),
    );
    Ok(ExitCode::SUCCESS)
}

/// Lines that differ: expected ones with `-`, those that came with `+`.
fn difference(expected: &str, actual: &str) -> Vec<String> {
    let (mut old, mut new) = (expected.lines(), actual.lines());
    let mut out = Vec::new();
    loop {
        match (old.next(), new.next()) {
            (None, None) => return out,
            (Some(old), Some(new)) if old == new => out.push(format!("    {old}")),
            (old, new) => {
                out.extend(old.map(|line| format!("  - {line}")));
                out.extend(new.map(|line| format!("  + {line}")));
            }
        }
    }
}

fn show(caller: &Caller, topic: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, SHOWN)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let program = weir.store().program(topic).ok_or_else(|| {
        let what = format!("there is no program in topic {topic}");
        Failure::new(ErrorCode::TopicUnknown, what)
    })?;
    out.row(&[
        Cell::Text(topic.into()),
        Cell::Text(program.mode.name().into()),
        Cell::Count(program.state_entries),
        Cell::Size(program.state_bytes),
        Cell::Text(script::show(&program.args).into()),
        Cell::Text(program.code.to_string().into()),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
